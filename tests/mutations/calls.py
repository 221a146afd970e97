"""The breaks of what keeps a call of an agent or a guarded command from happening unseen or twice."""

from tests.mutations.mutant import Mutant

HOOKS = "tests/supervisor/test_hooks.py"
SHIMS = "tests/supervisor/test_shims.py"
BACKGROUND = "tests/supervisor/test_background_calls.py"
ISOLATION = "tests/supervisor/test_call_isolation.py"
FOLDER = "tests/supervisor/test_shim_folder.py"
REPEATED = "tests/supervisor/test_repeated_calls.py"
OTHERS = "tests/supervisor/test_other_calls.py"
RESULTS = "tests/supervisor/test_call_results.py"
FRESH = "tests/supervisor/test_fresh_sessions.py"
GUARD = "tests/supervisor/test_guard.py"
LEFT = "tests/supervisor/test_left_of_calls.py"

MUTANTS = (
    Mutant(
        "a start that does not look at what is on file",
        "supervisor/attempt/leftovers.py",
        "for there in roster.alive() if",
        "for there in [] if",
        (
            f"{LEFT}::test_the_command_of_an_effect_in_a_cleaned_environment_is_stopped_before_it_is_looked_up",
        ),
    ),
    Mutant(
        "a call that a person says did not happen while it is under way",
        "acts/settle.py",
        "    if alive:\n        oldest",
        "    if False:\n        oldest",
        (f"{LEFT}::test_that_a_call_did_not_happen_is_refused_while_a_process_of_it_lives",),
    ),
    Mutant(
        "a call that ended well, no progress",
        "supervisor/attempt/progress.py",
        "    return has_new_files or (attempt is not None and _has_made_calls(run.journal, attempt.seq))\n",
        "    return has_new_files\n",
        (f"{GUARD}::test_a_loop_that_only_posts_and_dies_after_each_post_gets_to_its_end",),
    ),
    Mutant(
        "a call that failed, progress",
        "supervisor/attempt/progress.py",
        '                if not isinstance(result, dict) or result.get("ok") is not False:\n',
        "                if True:\n",
        (f"{GUARD}::test_a_loop_whose_posts_fail_makes_no_progress",),
    ),
    Mutant(
        "a guarded command that makes what it made in a beat that has ended again",
        "supervisor/agent/guard.py",
        "        holds.read(FRESH)\n",
        "",
        (f"{GUARD}::test_what_was_done_in_a_beat_that_has_ended_is_not_done_again",),
    ),
    Mutant(
        "a guarded run that is unguarded when its line is typed again",
        "supervisor/start.py",
        "        was_guarded = last is not None and last.guard\n",
        "        was_guarded = False\n",
        (
            f"{GUARD}::test_a_loop_killed_at_any_instant_goes_on_and_does_nothing_twice[before post b-everything-bash]",
        ),
    ),
    Mutant(
        "a guarded command whose call is held, started again and again",
        "supervisor/agent/guard.py",
        " if self._programs.has_held else None\n",
        " if False else None\n",
        (
            f"{GUARD}::test_a_loop_killed_at_any_instant_goes_on_and_does_nothing_twice[before post b-everything-bash]",
        ),
    ),
    Mutant(
        "a repository that switches the guard off",
        "settings.py",
        "_ON = FromRepository(stricter=lambda says, own: says or not own)\n",
        "_ON = FromRepository()\n",
        (f"{GUARD}::test_a_repository_switches_the_guard_on_and_never_off[true-false-True]",),
    ),
    Mutant(
        "a program below a script's effect, on record twice",
        "supervisor/agent/guard.py",
        "        if shim.call:\n",
        "        if False:\n",
        (f"{GUARD}::test_below_an_effect_of_a_script_the_effect_is_the_record",),
    ),
    Mutant(
        "another call under the id of one under way",
        "supervisor/agent/calls/calls.py",
        "            if all(is_part(each, opened.recorded) for each in record.outward):\n",
        "            if True:\n",
        (f"{HOOKS}::test_the_id_of_a_call_under_way_lets_no_other_one_through",),
    ),
    Mutant(
        "a call in doubt that is not held",
        "supervisor/agent/calls/repeats.py",
        '                if opened[effect].state == "in_doubt" and',
        "                if False and",
        (
            f"{HOOKS}::test_a_call_to_the_address_of_one_in_doubt_is_held_whatever_its_flags_and_words[claude]",
        ),
    ),
    Mutant(
        "a call in doubt that is known by its words",
        "supervisor/agent/calls/identity.py",
        '    if compared != "another":\n',
        '    if compared != "another" and first.words == again.words:\n',
        (
            f"{REPEATED}::test_the_same_body_to_the_same_address_is_held_until_it_is_settled_and_then_answered[other flags]",
        ),
    ),
    Mutant(
        "what is known of a call, never told",
        "supervisor/agent/calls/repeats.py",
        '            answer = "" if is_answered else self._found(past, again)\n',
        '            answer = ""\n',
        (f"{HOOKS}::test_what_is_known_of_it_is_answered_once_and_then_it_is_another_call[claude]",),
    ),
    Mutant(
        "what is known of a call, told for ever",
        "supervisor/agent/calls/repeats.py",
        "            is_answered = effect in self._answered or ",
        "            is_answered = ",
        (f"{HOOKS}::test_what_is_known_of_it_is_answered_once_and_then_it_is_another_call[claude]",),
    ),
    Mutant(
        "that it was told, forgotten by the next attempt",
        "supervisor/agent/calls/history.py",
        '            self._answered.append((self.memories.now, f"{intent.beat}.{intent.n}", call))\n',
        "            pass\n",
        (f"{HOOKS}::test_that_it_was_answered_is_remembered_by_the_next_attempt",),
    ),
    Mutant(
        "what a script did, forgotten with the call around it",
        "supervisor/agent/calls/calls.py",
        "                if code != 0 or not self._is_below(opened):\n",
        "                if True:\n",
        (f"{SHIMS}::test_what_a_script_did_before_its_call_was_cut_off_is_told_and_not_done_again",),
    ),
    Mutant(
        "what only a shim saw, forgotten",
        "supervisor/agent/calls/repeats.py",
        "            self._past.setdefault(effect, PastCall(call, record, 0))\n",
        "            pass\n",
        (f"{SHIMS}::test_in_its_own_session_what_only_a_shim_saw_is_answered_once",),
    ),
    Mutant(
        "a server's refusal, taken for done",
        "supervisor/agent/calls/calls.py",
        "            if code == 0 and opened.waits == 0 and not opened.unseen and opened.sure:\n",
        "            if code == 0 and opened.waits == 0 and not opened.unseen:\n",
        (f"{SHIMS}::test_whether_a_server_accepted_is_not_known_by_the_exit_code_of_curl",),
    ),
    Mutant(
        "another body, answered as a repetition",
        "supervisor/agent/calls/repeats.py",
        "        if first is None or likeness not in SAME or ",
        '        likeness = "same" if likeness != "unrelated" else likeness\n        if first is None or ',
        (f"{REPEATED}::test_after_a_call_was_settled_as_happened_another_body_to_its_address_is_made",),
    ),
    Mutant(
        "an unknown content, taken for another one",
        "supervisor/agent/calls/identity.py",
        "        return compared\n",
        '        return compared if compared == "same" else again.another\n',
        (
            f"{OTHERS}::test_a_call_of_a_journal_without_contents_counts_as_the_same",
            f"{OTHERS}::test_what_a_call_sends_and_nobody_knows_beforehand_counts_as_the_same",
        ),
    ),
    Mutant(
        "other words for a comment, let through",
        "supervisor/agent/calls/identity.py",
        '    return "reworded" if again.another == "held" else again.another\n',
        '    return "free" if again.another == "held" else again.another\n',
        (f"{OTHERS}::test_where_the_target_names_the_act_other_words_are_held_and_cannot_be_named_another",),
    ),
    Mutant(
        "another body, named by trying again",
        "supervisor/agent/calls/history.py",
        "[self._requests :]:\n",
        "[0:]:\n",
        (f"{OTHERS}::test_what_was_named_stands_for_the_next_attempt_and_for_nothing_that_comes_later",),
    ),
    Mutant(
        "another body to one address, let through unasked",
        "supervisor/agent/calls/repeats.py",
        "        return not contents <= self._history.named[effect]\n",
        "        return False\n",
        (
            f"{OTHERS}::test_another_body_is_held_until_the_agent_says_by_name_that_it_is_another_call[claude]",
        ),
    ),
    Mutant(
        "a call that a person said is the same, made all the same",
        "supervisor/agent/calls/repeats.py",
        '            if past.record.state == "confirmed":\n',
        "            if False:\n",
        (f"{GUARD}::test_a_comment_in_other_words_is_not_made_by_trying_again[--happened-retried]",),
    ),
    Mutant(
        "a call that a person said is another one, asked about again",
        "supervisor/agent/calls/repeats.py",
        "                self._released.add(effect)\n                return order(effect)\n",
        "                return (0, 0)\n",
        (f"{GUARD}::test_a_comment_in_other_words_is_not_made_by_trying_again[--did-not-ignored]",),
    ),
    Mutant(
        "what is in doubt, passed by a call that somebody called another",
        "supervisor/agent/calls/repeats.py",
        "            if past.call.asks:\n                continue\n",
        "            if past.call.asks or order(effect) < before:\n                continue\n",
        (f"{GUARD}::test_what_is_in_doubt_holds_a_call_that_somebody_called_another",),
    ),
    Mutant(
        "a call on record word for word, made because another one was let pass",
        "supervisor/agent/calls/repeats.py",
        "        before = (0, 0) if is_on_record else self._release(alike)\n",
        "        before = self._release(alike)\n",
        (f"{GUARD}::test_what_is_on_record_word_for_word_stands_for_itself_beside_what_was_asked",),
    ),
    Mutant(
        "a further comment, answered by each one before it",
        "supervisor/agent/calls/repeats.py",
        '        return likeness != "same" and all(',
        "        return False and all(",
        (f"{OTHERS}::test_a_further_comment_is_answered_once_however_many_there_were",),
    ),
    Mutant(
        "an unknown content, meant because it was answered",
        "supervisor/agent/calls/repeats.py",
        " for each in call.outward if content.is_whole(each.content)]\n",
        " for each in call.outward]\n",
        (
            f"{OTHERS}::test_in_a_fresh_session_what_nobody_knows_the_content_of_is_answered_for_each_call_that_it_may_be",
        ),
    ),
    Mutant(
        "a fresh session that was told what another one was",
        "supervisor/agent/calls/history.py",
        "            if (memory is None or self.memories.of(where) == memory) and effect not in of_subagents\n",
        "            if effect not in of_subagents\n",
        (f"{FRESH}::test_killed_again_in_its_fresh_session_it_repeats_no_confirmed_call",),
    ),
    Mutant(
        "an unknown result, called a success",
        "supervisor/agent/calls/open_call.py",
        " if is_known else None\n",
        "\n",
        (f"{RESULTS}::test_what_nobody_tells_the_result_of_is_not_called_a_success",),
    ),
    Mutant(
        "a program that failed, hidden by its call",
        "supervisor/agent/calls/open_call.py",
        "        ok = end.ok and not self.code if ",
        "        ok = end.ok if ",
        (f"{RESULTS}::test_a_program_that_failed_is_no_success_though_its_call_is_one",),
    ),
    Mutant(
        "what ended well in a call that failed, done again",
        "supervisor/agent/calls/history.py",
        '        ended = result.get("done", ())\n',
        "        ended = ()\n",
        (f"{RESULTS}::test_of_a_call_that_failed_what_ended_well_is_not_repeated_in_a_fresh_session",),
    ),
    Mutant(
        "a killed call that no shim saw, taken for a failure",
        "supervisor/agent/calls/calls.py",
        "        if not opened.unseen or opened.lost or (code or 0) <= SIGNALLED:\n",
        "        if True:\n",
        (f"{RESULTS}::test_a_killed_call_that_no_shim_saw_is_in_doubt_before_the_next_one_is_judged[137]",),
    ),
    Mutant(
        "a program that runs on and keeps a beat from ending",
        "supervisor/agent/calls/calls.py",
        "        return any(not each.by_shim and not each.background for each in self._calls.values())\n",
        "        return any(not each.background for each in self._calls.values())\n",
        (
            f"{ISOLATION}::test_beats_end_and_are_counted_while_a_program_runs_that_only_a_shim_saw",
            f"{ISOLATION}::test_no_program_that_runs_on_gets_an_agent_past_its_budget",
        ),
    ),
    Mutant(
        "a killed program, in doubt only when its call has ended",
        "supervisor/agent/calls/calls.py",
        '                self._doubt(opened, "a program of it was killed")\n',
        "                pass\n",
        (
            f"{REPEATED}::test_a_call_whose_program_was_killed_is_held_when_the_agent_retries_it_at_once[the program]",
            f"{REPEATED}::test_inside_one_call_a_killed_program_is_not_run_again[or-the program]",
        ),
    ),
    Mutant(
        "what was not begun, in doubt with what was",
        "supervisor/agent/calls/repeats.py",
        "(begun or {}).get(known, past.call.outward)",
        "past.call.outward",
        (
            f"{REPEATED}::test_inside_one_call_what_goes_elsewhere_after_a_killed_program_is_made[the program]",
        ),
    ),
    Mutant(
        "a call that lost a program and lets its next one pass unjudged",
        "supervisor/agent/calls/open_call.py",
        "for each in calls if not each.lost and all(",
        "for each in calls if all(",
        (
            f"{REPEATED}::test_inside_one_call_another_body_to_the_address_of_a_killed_program_is_held[the program]",
        ),
    ),
    Mutant(
        "a call whose program was killed, taken at its word",
        "supervisor/agent/calls/calls.py",
        "        if not opened.lost:  # its",
        "        if True:  # its",
        (f"{SHIMS}::test_a_call_that_ended_well_with_a_program_of_it_killed_is_in_doubt",),
    ),
    Mutant(
        "of two calls alike the first has done it",
        "supervisor/agent/calls/open_call.py",
        "    if len(under_way) == 1 and ",
        "    if under_way and ",
        (f"{SHIMS}::test_of_two_calls_alike_nobody_knows_whose_program_it_is",),
    ),
    Mutant(
        "a call that is over before its program",
        "supervisor/agent/calls/calls.py",
        "            if opened.is_outward and (task or opened.live or left):\n",
        "            if opened.is_outward and (task or left):\n",
        (
            f"{SHIMS}::test_a_call_that_left_its_program_running_has_no_outcome_before_that_ends[killed]",
            f"{BACKGROUND}::test_an_attempt_killed_while_it_runs_leaves_it_in_doubt",
        ),
    ),
    Mutant(
        "a call whose program ended and that never ends",
        "supervisor/agent/calls/calls.py",
        "        if opened.background and not opened.runs_on and",
        "        if False and",
        (
            f"{SHIMS}::test_a_call_that_left_its_program_running_has_no_outcome_before_that_ends[killed]",
            f"{BACKGROUND}::test_the_beat_of_a_call_whose_program_runs_on_ends_and_its_effect_stays_open_until_that_ends",
        ),
    ),
    Mutant(
        "a call that its shim refused and that counts as made",
        "supervisor/agent/observer.py",
        "                    self._calls.refused(event.id, words)\n",
        "                    pass\n",
        (f"{SHIMS}::test_a_call_that_its_shim_refused_is_on_record_as_not_done",),
    ),
    Mutant(
        "a call whose program ran and that counts as refused",
        "supervisor/agent/calls/open_call.py",
        " for program, each in pairs if each in self.unseen)\n",
        " for program, each in pairs)\n",
        (f"{SHIMS}::test_a_call_whose_program_ran_cannot_say_that_its_shim_refused_it",),
    ),
    Mutant(
        "one refusal of a shim's that stands for all programs of a call",
        "supervisor/agent/hook_input.py",
        "sorted(match[1] for match in found) == sorted(programs)",
        "{match[1] for match in found} == set(programs)",
        (f"{SHIMS}::test_only_a_shims_refusal_of_each_of_its_programs_says_that_a_call_was_not_made",),
    ),
    Mutant(
        "a refused program of a call whose other program ran that counts as done",
        "supervisor/agent/calls/calls.py",
        "            self._fail(self._put(call, refused), reason)\n",
        "",
        (f"{SHIMS}::test_of_a_call_with_two_programs_what_ran_is_confirmed_and_what_was_refused_is_not",),
    ),
    Mutant(
        "what is installed meanwhile has no shim",
        "supervisor/agent/hooks.py",
        "            self._outward.refresh_shims()\n",
        "",
        (f"{FOLDER}::test_what_is_installed_meanwhile_has_a_shim_at_the_next_call_and_what_is_not_has_none",),
    ),
    Mutant(
        "what ends below a call is on record before that call",
        "supervisor/agent/calls/calls.py",
        "(*self._unwritten_before(opened.beat, opened.n), opened.unwritten, *events)",
        "(opened.unwritten, *events)",
        (
            "tests/supervisor/test_subagent_calls.py::test_a_call_is_on_record_after_the_one_around_it_also_where_that_waits_for_its_outcome",
        ),
    ),
    Mutant(
        "what reaches outside is on record before the call around it",
        "supervisor/agent/calls/calls.py",
        "            self._beats.append(*self._unwritten_before(beat.number, n), intent)\n",
        "            self._beats.append(intent)\n",
        (
            "tests/supervisor/test_subagent_calls.py::test_a_call_is_on_record_after_the_one_around_it_also_where_that_waits_for_its_outcome",
        ),
    ),
    Mutant(
        "what a sub-agent worked for is not on record when it ends",
        "supervisor/agent/calls/calls.py",
        " and not self._was_long(opened)",
        "",
        (
            "tests/supervisor/test_subagent_calls.py::test_a_call_that_is_dear_to_do_again_is_on_record_when_its_agent_is_told",
        ),
    ),
)
