"""The breaks of what minds agents: what keeps a call from happening unseen or twice, and a session from being lost."""

from tests.mutations import Mutant

MINDING = "tests/supervisor/test_minding.py"
TRANSCRIPTS = "tests/supervisor/test_transcripts.py"

MUTANTS = (
    Mutant(
        "a hook's client that passes what it cannot ask about",
        "supervisor/hookclient.py",
        "    return DENIED\n\n\ndef _outward",
        "    return 0\n\n\ndef _outward",
        (
            f"{MINDING}::test_without_a_supervisor_what_reaches_outside_is_denied_and_what_is_local_passes[claude]",
        ),
    ),
    Mutant(
        "a hook's client that passes what it cannot read",
        "supervisor/hookclient.py",
        '        found = f"a call that cannot be understood ({type(error).__name__})"\n',
        '        found = ""\n',
        (f"{MINDING}::test_without_a_supervisor_what_cannot_be_understood_is_denied",),
    ),
    Mutant(
        "a hook's client that takes any answer for leave",
        "supervisor/hookclient.py",
        '        raise ValueError("the supervisor refused")\n',
        '        return 0, b""\n',
        (f"{MINDING}::test_a_supervisor_that_gives_no_whole_answer_has_allowed_nothing",),
    ),
    Mutant(
        "a hook's client that does not know what the user named",
        "supervisor/guards.py",
        "    classes = (str(own),) if own.exists() else ()\n",
        "    classes = ()\n",
        (f"{MINDING}::test_without_a_supervisor_what_the_user_named_is_denied_as_well",),
    ),
    Mutant(
        "a shim that runs what nobody recorded",
        "supervisor/shimming.py",
        '        return _refuse(words, f"it is not on record: {error}")\n',
        "        return _run(real, words)\n",
        (f"{MINDING}::test_a_shim_without_a_supervisor_runs_nothing",),
    ),
    Mutant(
        "a verdict before the intent",
        "supervisor/minding.py",
        "            self.calls.intend(start, told)\n        except",
        "            pass\n        except",
        (f"{MINDING}::test_a_call_is_on_record_when_its_hook_is_answered[claude]",),
    ),
    Mutant(
        "a call that is allowed although it could not be recorded",
        "supervisor/minding.py",
        "            self._fail(error)\n            if told.outward:\n",
        "            self._fail(error)\n            if False:\n",
        (f"{MINDING}::test_what_cannot_be_put_on_record_does_not_happen_outside[claude]",),
    ),
    Mutant(
        "a hook input that nobody can read, passed",
        "supervisor/minding.py",
        "        if not _is_understood(hook, data):\n",
        "        if False:\n",
        (f"{MINDING}::test_an_input_that_cannot_be_read_is_no_leave_to_act",),
    ),
    Mutant(
        "another call under the id of one under way",
        "supervisor/calls.py",
        "                if {each.signature for each in told.outward} <= set(opened.recorded):\n",
        "                if True:\n",
        (f"{MINDING}::test_the_id_of_a_call_under_way_lets_no_other_one_through",),
    ),
    Mutant(
        "two calls of one name, recorded once",
        "supervisor/calls.py",
        "            key = self._key(start.id)\n",
        "            key = self._key(start.id)\n            if key != start.id:\n                return\n",
        (
            f"{MINDING}::test_a_call_made_twice_is_on_record_twice_also_where_an_agent_names_both_alike",
            f"{MINDING}::test_what_did_not_happen_may_be_done_and_is_on_record_again[gemini]",
        ),
    ),
    Mutant(
        "a call in doubt that is not held",
        "supervisor/holding.py",
        '                if open_now[known].state == "in_doubt":\n',
        "                if False:\n",
        (f"{MINDING}::test_the_signature_of_a_call_in_doubt_is_held_whatever_its_flags_and_words[claude]",),
    ),
    Mutant(
        "a call in doubt that is known by its words",
        "supervisor/holding.py",
        "            same = [each.signature for each in told.outward if each.signature in signatures]\n",
        "            same = [each.signature for each in told.outward if each.words in signatures]\n",
        (f"{MINDING}::test_the_signature_of_a_call_in_doubt_is_held_whatever_its_flags_and_words[claude]",),
    ),
    Mutant(
        "what is known of a call, never told",
        "supervisor/holding.py",
        "                answer = self._found(known, same[0], record)\n",
        '                answer = ""\n',
        (f"{MINDING}::test_what_is_known_of_it_is_answered_once_and_then_it_is_another_call[claude]",),
    ),
    Mutant(
        "what is known of a call, told for ever",
        "supervisor/holding.py",
        "            elif known not in self._answered:\n",
        "            else:\n",
        (f"{MINDING}::test_what_is_known_of_it_is_answered_once_and_then_it_is_another_call[claude]",),
    ),
    Mutant(
        "that it was told, forgotten by the next attempt",
        "supervisor/holding.py",
        "            self._answered.add(told.answered)\n",
        "            pass\n",
        (f"{MINDING}::test_that_it_was_answered_is_remembered_by_the_next_attempt",),
    ),
    Mutant(
        "a transcript that is not copied",
        "supervisor/transcripts.py",
        "            files.append_durably(self._copy, data, at=self.length)\n",
        "            pass\n",
        (
            f"{TRANSCRIPTS}::test_only_whole_lines_are_read_and_each_once",
            f"{MINDING}::test_a_transcript_that_a_kill_took_comes_back_from_our_copy",
        ),
    ),
    Mutant(
        "a copy that goes on behind what a failed write left",
        "store/files.py",
        "        os.ftruncate(fd, at)\n",
        "        at = os.fstat(fd).st_size\n",
        (f"{TRANSCRIPTS}::test_what_a_failed_write_left_in_the_copy_is_cut_off",),
    ),
    Mutant(
        "a cut call whose model is told nothing",
        "supervisor/minding.py",
        "self._adapter.mend(data, inside) if inside else data",
        "data",
        (f"{MINDING}::test_the_transcript_is_mended_with_the_truth_about_the_call_that_was_cut_off",),
    ),
    Mutant(
        "a lost transcript that stays lost",
        "supervisor/transcripts.py",
        '            return ours, "it was gone"\n',
        '            return b"", "it was gone"\n',
        (f"{MINDING}::test_a_transcript_that_a_kill_took_comes_back_from_our_copy",),
    ),
)
