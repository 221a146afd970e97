"""The breaks of what minds agents: their hooks and transcripts, and what keeps a session from being lost."""

from tests.mutations import Mutant

HOOKS = "tests/supervisor/test_hooks.py"
TRANSCRIPTS = "tests/supervisor/test_transcripts.py"
SESSIONS = "tests/supervisor/test_sessions.py"
ISOLATION = "tests/supervisor/test_call_isolation.py"
LATE = "tests/supervisor/test_late_transcripts.py"
UPGRADE = "tests/supervisor/test_upgrade.py"
CLIENT_COPY = "tests/supervisor/test_client_copy.py"
MASKED = "tests/supervisor/test_masked_calls.py"
RESULTS = "tests/supervisor/test_call_results.py"
FRESH = "tests/supervisor/test_fresh_sessions.py"
BACKGROUND = "tests/supervisor/test_background_calls.py"
SHIM_FOLDER = "tests/supervisor/test_shim_folder.py"
HAPPENED = f"{BACKGROUND}::test_one_that_happened_just_before_a_kill_is_told_and_not_made_again_unawares"

MUTANTS = (
    Mutant(
        "a hook's client that passes what it cannot ask about",
        "supervisor/client/hook.py",
        "    return DENIED\n\n\ndef _outward",
        "    return 0\n\n\ndef _outward",
        (
            f"{HOOKS}::test_without_a_supervisor_what_reaches_outside_is_denied_and_what_is_local_passes[claude]",
        ),
    ),
    Mutant(
        "a hook's client that passes what it cannot read",
        "supervisor/client/hook.py",
        '        found = f"a call that cannot be understood ({type(error).__name__})"\n',
        '        found = ""\n',
        (f"{HOOKS}::test_without_a_supervisor_what_cannot_be_understood_is_denied",),
    ),
    Mutant(
        "a hook's client that takes any answer for leave",
        "supervisor/client/hook.py",
        '            raise ValueError("the supervisor refused")\n',
        '            return there, 0, b""\n',
        (f"{HOOKS}::test_a_supervisor_that_gives_no_whole_answer_has_allowed_nothing",),
    ),
    Mutant(
        "a hook input that nobody can read, passed",
        "supervisor/agent/hooks.py",
        "        if not hook_input.is_understood(hook, data):\n",
        "        if False:\n",
        (f"{HOOKS}::test_an_input_that_cannot_be_read_is_no_leave_to_act",),
    ),
    Mutant(
        "two calls of one name, recorded once",
        "supervisor/agent/responses.py",
        "            self._calls.intend(start.id, record)\n",
        "            if self._calls.knows(start.id):\n                return\n            self._calls.intend(start.id, record)\n",
        (
            f"{HOOKS}::test_a_call_made_twice_is_on_record_twice_also_where_an_agent_names_both_alike",
            f"{HOOKS}::test_what_did_not_happen_may_be_done_and_is_on_record_again[gemini]",
        ),
    ),
    Mutant(
        "a transcript that is not copied",
        "supervisor/agent/session/transcript_copy.py",
        "            durable.append_durably(self._copy, data, at=self.length)\n",
        "            pass\n",
        (
            f"{TRANSCRIPTS}::test_only_whole_lines_are_read_and_each_once",
            f"{HOOKS}::test_a_transcript_that_a_kill_took_comes_back_from_our_copy",
        ),
    ),
    Mutant(
        "a copy that goes on behind what a failed write left",
        "store/durable.py",
        "        os.ftruncate(fd, at)\n",
        "        at = os.fstat(fd).st_size\n",
        (f"{TRANSCRIPTS}::test_what_a_failed_write_left_in_the_copy_is_cut_off",),
    ),
    Mutant(
        "a cut call whose model is told nothing",
        "supervisor/agent/start.py",
        "self._known.transcript.mend(data, [*before, *inside]) if before or inside else data",
        "data",
        (f"{HOOKS}::test_the_transcript_is_mended_with_the_truth_about_the_call_that_was_cut_off",),
    ),
    Mutant(
        "a lost transcript that stays lost",
        "supervisor/agent/session/transcript_copy.py",
        '            return ours, "it was gone"\n',
        '            return b"", "it was gone"\n',
        (f"{HOOKS}::test_a_transcript_that_a_kill_took_comes_back_from_our_copy",),
    ),
    Mutant(
        "a copy that is begun anew with the file",
        "supervisor/agent/session/transcript_copy.py",
        '        self._read, self._last = (len(kept), b"\\n" if kept else b"") if goes_on else (0, b"")\n',
        '        self._read, self._last = 0, b""\n        self._begin(b"")\n',
        (
            f"{TRANSCRIPTS}::test_what_is_written_into_a_file_anew_is_added_to_the_copy_which_loses_nothing",
            f"{SESSIONS}::test_no_beat_of_a_save_point_is_missing_where_the_transcript_was_cut_short_under_a_live_agent",
        ),
    ),
    Mutant(
        "a damaged copy that is trusted",
        "supervisor/agent/session/transcript_copy.py",
        "        if mark is not None and not sessions.is_as(mark, ours):\n",
        "        if False:\n",
        (f"{TRANSCRIPTS}::test_a_copy_that_is_not_what_its_mark_says_makes_nothing_whole",),
    ),
    Mutant(
        "a hook that lets a call pass when it is killed",
        "supervisor/client/hook.sh",
        "\nexit 2\n",
        "\nexit 1\n",
        (
            f"{SESSIONS}::test_a_hook_that_is_killed_denies_its_call[codex]",
            f"{SESSIONS}::test_a_hook_whose_interpreter_is_gone_denies_its_call",
        ),
    ),
    Mutant(
        "a call that nobody recorded, taken for one that was not made",
        "supervisor/agent/session/reconcile.py",
        "        if told.outward:\n",
        "        if False:\n",
        (f"{SESSIONS}::test_a_call_outside_that_nobody_recorded_is_in_doubt_and_held",),
    ),
    Mutant(
        "a call that the transcript lost, told to nobody",
        "supervisor/agent/session/reconcile.py",
        "                    found += _unseen(run, intent, told, event, seen)\n",
        "                    pass\n",
        (f"{SESSIONS}::test_a_call_that_only_the_journal_knows_of_is_told_from_it",),
    ),
    Mutant(
        "a session that is tried again and again",
        "supervisor/agent/session/choice.py",
        "                self._refused.add(self._now)\n",
        "                pass\n",
        (f"{SESSIONS}::test_after_one_resume_that_came_to_nothing_a_fresh_session_is_started",),
    ),
    Mutant(
        "colours that hide what a CLI says",
        "supervisor/agent/session/choice.py",
        'search(_ANSI.sub("", event.evidence))',
        "search(event.evidence)",
        (f"{SESSIONS}::test_a_session_that_its_cli_does_not_know_is_not_tried_again",),
    ),
    Mutant(
        "what a resume needs besides, not kept",
        "supervisor/agent/session/follower.py",
        "        mirror.keep_beside(beside.sidecars)\n",
        "",
        (f"{SESSIONS}::test_what_a_resume_needs_besides_comes_back_with_the_transcript",),
    ),
    Mutant(
        "a fresh session that repeats what was done",
        "supervisor/agent/start.py",
        "        self._holds.read(FRESH)  # it knows",
        "        pass  # it knows",
        (f"{FRESH}::test_in_a_fresh_session_a_model_that_starts_over_repeats_no_confirmed_call",),
    ),
    Mutant(
        "a failed command of Gemini, called a success",
        "agents/gemini/shell.py",
        "    return ToolEnd(call, not code, said,",
        "    return ToolEnd(call, True, said,",
        (
            f"{RESULTS}::test_a_push_that_failed_in_gemini_is_on_record_with_its_exit_code_and_not_among_what_is_done",
        ),
    ),
    Mutant(
        "a failed command of opencode, called a success",
        "agents/opencode/transcript.py",
        "    return ToolEnd(call, code in (None, 0), said,",
        "    return ToolEnd(call, True, said,",
        ("tests/agents/test_exit_codes.py::test_opencode_tells_the_code_beside_its_output",),
    ),
    Mutant(
        "what failed, listed as done",
        "runs/reader.py",
        "            if known in told and _failed(journal, event.result):\n",
        "            if False:\n",
        (
            f"{RESULTS}::test_a_push_that_failed_in_gemini_is_on_record_with_its_exit_code_and_not_among_what_is_done",
        ),
    ),
    Mutant(
        "a beat that waits for the transcript to tell of a shim",
        "supervisor/agent/responses.py",
        "not record.lane and not call.startswith(SHIM):\n",
        "not record.lane:\n",
        (f"{ISOLATION}::test_beats_end_and_are_counted_while_a_program_runs_that_only_a_shim_saw",),
    ),
    Mutant(
        "a response that is told late and opens a beat of its own",
        "supervisor/agent/responses.py",
        "            self._ahead.add(self._response)\n",
        "            pass\n",
        (
            f"{LATE}::test_each_response_is_one_beat_and_costs_once_however_late_the_transcript_is[kimi-code]",
            f"{LATE}::test_each_response_is_one_beat_and_costs_once_however_late_the_transcript_is[claude]",
        ),
    ),
    Mutant(
        "two responses in one beat, when a hook told of the second one's call first",
        "supervisor/agent/responses.py",
        "                    self._owed += 1\n",
        "                    pass\n",
        (f"{LATE}::test_each_response_is_one_beat_and_costs_once_however_late_the_transcript_is[kimi-code]",),
    ),
    Mutant(
        "a response that costs again in the beat after its own",
        "supervisor/agent/session/follower.py",
        "cost.minus(self._recorded[key]) if key in self._recorded else cost",
        "cost",
        (
            f"{LATE}::test_each_response_is_one_beat_and_costs_once_however_late_the_transcript_is[claude]",
            f"{LATE}::test_killed_between_two_lines_of_a_response_it_costs_once",
        ),
    ),
    Mutant(
        "a call that is let through before the cost of the beat before is known",
        "supervisor/agent/hooks.py",
        "        self._await_transcript(hook)\n",
        "",
        (f"{LATE}::test_a_call_waits_until_the_transcript_tells_what_the_beat_before_it_cost",),
    ),
    Mutant(
        "a transcript that never tells, waited for at each call",
        "supervisor/agent/responses.py",
        "        self._missed |= self._unwritten\n",
        "        pass\n",
        (f"{LATE}::test_a_transcript_that_never_tells_is_waited_for_once",),
    ),
    Mutant(
        "a call that is let through by an attempt that has failed",
        "supervisor/agent/hooks.py",
        "(progress.leaves or progress.failure is not None)\n",
        "progress.leaves\n",
        (f"{HOOKS}::test_what_cannot_be_put_on_record_does_not_happen_outside[claude]",),
    ),
    Mutant(
        "why there is no further beat, told once only",
        "supervisor/beat_in_flight.py",
        "        if self._no_more is not None:\n",
        "        if False:\n",
        (
            f"{ISOLATION}::test_every_call_after_the_last_beat_is_told_why_there_is_no_other",
            f"{ISOLATION}::test_of_steps_at_once_those_after_the_last_beat_are_told_why_and_are_on_record",
        ),
    ),
    Mutant(
        "a step after the last beat that is sent to a beat that is closed",
        "supervisor/socket/script_calls.py",
        "        beat = self._beats.now()  # where no other is allowed",
        "        beat = self._beats.last  # where no other is allowed",
        (f"{ISOLATION}::test_of_steps_at_once_those_after_the_last_beat_are_told_why_and_are_on_record",),
    ),
    Mutant(
        "a full disk that is an unexpected error when an agent is started",
        "supervisor/agent/attempt.py",
        "        with self._beats.noting_failure():\n",
        "        if True:\n",
        (
            f"{CLIENT_COPY}::test_a_disk_with_no_room_for_the_copy_starts_no_agent_and_keeps_nothing_of_it[120]",
        ),
    ),
    Mutant(
        "a copy that is left half-made on a full disk",
        "supervisor/client/copy.py",
        "        shutil.rmtree(new, ignore_errors=True)\n        raise\n",
        "        raise\n",
        (
            f"{CLIENT_COPY}::test_a_disk_with_no_room_for_the_copy_starts_no_agent_and_keeps_nothing_of_it[120]",
        ),
    ),
    Mutant(
        "what a shim saw happen in the background and the agent is not told",
        "supervisor/agent/calls/interruptions.py",
        '        return _FOUND.get(event.finding, "")\n',
        '        return _FOUND.get(event.finding, "") if event.by != "shim" else ""\n',
        (f"{HAPPENED}[ended_by_its_program]",),
    ),
    Mutant(
        "what ended in the background and the agent is not told",
        "supervisor/agent/calls/interruptions.py",
        "    ended = unheard(run.journal)\n",
        "    ended: set[str] = set()\n",
        (f"{HAPPENED}[ended_by_its_task]",),
    ),
    Mutant(
        "what ended in the background and may be made again unawares",
        "supervisor/agent/calls/history.py",
        "            or effect in self._unheard\n",
        "",
        (f"{HAPPENED}[ended_by_its_task]",),
    ),
    Mutant(
        "what ended in the background, told for ever",
        "supervisor/agent/calls/history.py",
        "_spoken(journal, SPOKEN_BEATS)",
        "0",
        (f"{BACKGROUND}::test_one_whose_end_was_told_long_ago_is_not_told_again",),
    ),
    Mutant(
        "a doubt that an attempt was killed before it could tell",
        "supervisor/agent/calls/background.py",
        '        and (effect.state == "intended" or effect.id in unheard)\n',
        '        and effect.state == "intended"\n',
        (
            f"{BACKGROUND}::test_a_doubt_is_told_until_the_agent_goes_on",
            f"{BACKGROUND}::test_a_program_that_was_killed_in_the_background_is_told_too",
        ),
    ),
    Mutant(
        "a session that we cannot read and that is told nothing of what was not made",
        "supervisor/agent/start.py",
        '        return prompts.UNNAMED if is_asked and is_silent else ""\n',
        '        return ""\n',
        (
            f"{SESSIONS}::test_a_session_that_we_cannot_read_is_told_that_calls_that_are_not_named_were_not_made",
        ),
    ),
    Mutant(
        "an agent that asks nobody and is told that it was asked",
        "supervisor/agent/start.py",
        "is_asked = self._observer.hooked and not self._known.cli.hooks_off(ask)",
        "is_asked = self._observer.hooked",
        (f"{SESSIONS}::test_an_opencode_without_its_plugin_is_not_told_so",),
    ),
    Mutant(
        "a shim that may be empty",
        "supervisor/agent/calls/shims.py",
        "    except OSError:\n        new.unlink(missing_ok=True)\n        raise\n",
        "    except OSError:\n        new.replace(path)\n        raise\n",
        (f"{SHIM_FOLDER}::test_a_shim_for_which_there_is_no_room_is_made_when_there_is",),
    ),
    Mutant(
        "a shim for which there was no room, forgotten",
        "supervisor/agent/calls/shims.py",
        "            for name in sorted(names):\n",
        "            self._seen[place] = changed_ns\n            for name in sorted(names):\n",
        (f"{SHIM_FOLDER}::test_a_shim_for_which_there_is_no_room_is_made_when_there_is",),
    ),
    Mutant(
        "a call that did not happen and was silently not made again",
        "supervisor/supervisor.py",
        'self._tell("done", attempt.left_undone())',
        'self._tell("done")',
        (
            "tests/supervisor/test_repeated_calls.py::test_a_run_that_is_done_names_a_call_that_did_not_happen_and_was_not_made_again[not made again]",
        ),
    ),
    Mutant(
        "a copy whose byte code Python makes",
        "supervisor/client/copy.py",
        '    return found | dict(_compiled(name, data) for name, data in found.items() if name.endswith(".py"))\n',
        "    return found\n",
        (
            f"{CLIENT_COPY}::test_hooks_and_shims_find_their_byte_code",
            f"{CLIENT_COPY}::test_byte_code_that_was_cut_off_is_damage_and_the_next_attempt_makes_it_anew",
        ),
    ),
    Mutant(
        "a hook that writes byte code",
        "supervisor/client/hook.sh",
        '"$python" -I -S -B -c',
        '"$python" -I -S -c',
        (f"{CLIENT_COPY}::test_hooks_and_shims_that_ran_on_a_full_disk_work_when_there_is_room[another]",),
    ),
    Mutant(
        "a shim that writes byte code",
        "agents/outward/shims.py",
        '"-I", "-S", "-B", "-c"',
        '"-I", "-S", "-c"',
        (f"{CLIENT_COPY}::test_hooks_and_shims_that_ran_on_a_full_disk_work_when_there_is_room[another]",),
    ),
    Mutant(
        "a run that is over and holds its copy",
        "supervisor/attempt/attempt.py",
        "            self._remove_copy()\n        return True\n",
        "        return True\n",
        (f"{CLIENT_COPY}::test_a_run_that_is_over_holds_no_copy[done]",),
    ),
    Mutant(
        "a copied file that was changed and nobody is told",
        "supervisor/agent/progress.py",
        "        self._client.look()\n        stop =",
        "        stop =",
        (f"{CLIENT_COPY}::test_a_copied_file_that_was_changed_is_noticed_at_the_end_of_the_beat",),
    ),
    Mutant(
        "hooks that lost what they run and nobody is told",
        "supervisor/agent/observer.py",
        "                    self._calls.not_done(event.id, ours[0])\n                    self._progress.call_denied()\n",
        "                    self._calls.not_done(event.id, ours[0])\n",
        (f"{CLIENT_COPY}::test_a_person_is_told_once_what_to_do_when_hooks_have_lost_what_they_run",),
    ),
    Mutant(
        "a script that calls an outlast that is gone",
        "supervisor/script/init.sh",
        '    __outlast_is_there "$@" || return 125\n',
        "",
        (f"{UPGRADE}::test_a_script_is_told_in_one_line_that_outlast_is_gone",),
    ),
    Mutant(
        "hooks and shims that run what is installed",
        "supervisor/client/copy.py",
        "    held = contents()\n    copy = folder",
        "    return Path(__file__).parents[2]\n    copy = folder",
        (f"{UPGRADE}::test_a_live_agent_works_on_and_each_of_its_calls_is_on_record[remove_package]",),
    ),
    Mutant(
        "hooks and shims that need the virtual environment",
        "supervisor/client/copy.py",
        "    return below if os.path.isabs(below) and os.access(below, os.X_OK) else sys.executable\n",
        "    return sys.executable\n",
        (f"{UPGRADE}::test_a_live_agent_works_on_and_each_of_its_calls_is_on_record[remove]",),
    ),
    Mutant(
        "an attempt that reads what is installed then",
        "supervisor/client/copy.py",
        "@functools.cache\ndef contents",
        "def contents",
        (f"{UPGRADE}::test_a_live_supervisor_starts_its_agent_again[replace_package]",),
    ),
    Mutant(
        "a supervisor that loads the rest when it needs it",
        "supervisor/attempt/attempt.py",
        "            _load_rest(agent, gate)\n",
        "",
        (f"{UPGRADE}::test_the_last_words_of_an_agent_are_understood[remove_package]",),
    ),
    Mutant(
        "a message that does not tell its version",
        "supervisor/socket/wire.py",
        "msgspec.json.encode(msgspec.structs.replace(message, version=VERSION))",
        "msgspec.json.encode(message)",
        (f"{UPGRADE}::test_a_command_that_cannot_speak_to_the_supervisor_does_nothing[newer_wire]",),
    ),
    Mutant(
        "a key of an agent's call, shown",
        "inspect/show.py",
        "        args, result, evidence = masked(args), masked(result), secrets.mask(evidence)[0]\n",
        "        pass\n",
        (f"{MASKED}::test_a_key_of_a_call_is_masked_in_all_that_shows_or_tells_it",),
    ),
    Mutant(
        "a key of an agent's call, told to another session",
        "runs/reader.py",
        "    return secrets.mask(text)[0] if state.supervised or state.session is not None else text\n",
        "    return text\n",
        (f"{MASKED}::test_a_key_in_a_result_is_masked_in_the_context",),
    ),
    Mutant(
        "a key of an agent's call in the journal's page",
        "inspect/words.py",
        "secrets.mask_json(encoded)[0] if masks else encoded",
        "encoded",
        (f"{MASKED}::test_a_key_of_a_call_is_masked_in_all_that_shows_or_tells_it",),
    ),
)
