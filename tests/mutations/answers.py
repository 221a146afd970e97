"""The breaks of what makes an answer count only when its caller has got it."""

from tests.mutations.mutant import Mutant

HEARD = "tests/supervisor/test_heard_answers.py"
SUBAGENTS = "tests/supervisor/test_subagent_calls.py"
AT_ONCE = "tests/supervisor/test_calls_at_once.py"
CALLS = "supervisor/agent/calls"
_NOT_AGAIN = f"{HEARD}::test_a_guarded_call_whose_shim_is_killed_after_its_program_is_not_made_again"
_LAST = f"{HEARD}::test_the_last_word_of_a_client_is_its_last_act"

MUTANTS = (
    Mutant(
        "an answer whose caller was killed before its last word, taken",
        "supervisor/socket/delivery.py",
        ' else "taken" if reply == TAKEN else "lost"\n',
        ' else "taken"\n',
        (f"{HEARD}::test_an_answer_whose_side_leaves_without_a_word_is_lost",),
    ),
    Mutant(
        "an answer whose caller was killed after its last word, taken",
        "supervisor/socket/delivery.py",
        "        return bool(status & _SIGNAL)\n",
        "        return False\n",
        (f"{_NOT_AGAIN}[after it]",),
    ),
    Mutant(
        "a shim that says its last word before it has its answer",
        "supervisor/client/shim.py",
        '        there.send({"type": "report", "exit_code": code, **printed})\n',
        '        there.send({"type": "report", "exit_code": code, **printed})\n        there._sock.sendall(TAKEN)\n',
        (f"{_LAST}[shim]",),
    ),
    Mutant(
        "a call judged before it is looked at who heard of the last one",
        f"{CALLS}/programs.py",
        "        self._answers.look()\n        for each, (call, shim)",
        "        for each, (call, shim)",
        (f"{HEARD}::test_a_call_is_judged_by_what_was_heard_until_then",),
    ),
    Mutant(
        "a script below an agent that is told words in the place of its program's exit code",
        f"{CALLS}/programs.py",
        " and (self._replays or held.owed) else None\n",
        " and self._replays else None\n",
        (f"{HEARD}::test_a_loop_that_tries_until_its_call_succeeds_makes_it_once",),
    ),
    Mutant(
        "a program that does more than one that nobody heard of, ended as that was",
        f"{CALLS}/answers.py",
        "                is_same = is_all and not each.printed.cut\n",
        "                is_same = not each.printed.cut\n",
        (f"{HEARD}::test_a_program_that_does_more_than_the_one_nobody_heard_of_does_not_end_as_that_did",),
    ),
    Mutant(
        "an answer about an earlier call that counts although nobody heard it",
        f"{CALLS}/answers.py",
        "            self._holds.take_back(answer.effect, answer.record)\n",
        "            pass\n",
        (f"{HEARD}::test_a_call_of_an_earlier_attempt_is_answered_again_where_its_shim_is_killed",),
    ),
    Mutant(
        "a hook that says its last word before it has printed the answer",
        "supervisor/client/hook.py",
        "    if code == DENIED:\n",
        "    there.sendall(TAKEN)\n    if code == DENIED:\n",
        (f"{_LAST}[hook]",),
    ),
    Mutant(
        "a denial that nobody read, taken as read by the program that follows it",
        f"{CALLS}/programs.py",
        "        self._answers.begins(outward)\n",
        "",
        (f"{AT_ONCE}::test_a_denied_call_that_its_agent_makes_all_the_same_is_denied_by_its_shim",),
    ),
    Mutant(
        "a result recorded from the transcript, and nobody looks who heard of its programs",
        f"{CALLS}/answers.py",
        "        self._calls.answers(program.call, delivery)\n",
        "",
        (f"{HEARD}::test_what_only_the_transcript_tells_of_a_call_is_recorded_with_who_heard_of_it",),
    ),
    Mutant(
        "a session that goes on and is not told of a program that it did not hear of",
        f"{CALLS}/history.py",
        '        return isinstance(result, dict) and bool(result.get("unheard"))\n',
        "        return False\n",
        (f"{HEARD}::test_what_a_killed_session_was_told_of_a_killed_shim_it_is_told_again",),
    ),
    Mutant(
        "a word to wrap up that a killed hook did not pass on, taken as told",
        "supervisor/agent/hooks.py",
        "[*self._unheard(), *self._approvals.news(), self._budget.words()]",
        "[*self._approvals.news(), self._budget.words()]",
        ("tests/supervisor/test_wrap_up.py::test_a_word_that_a_killed_hook_did_not_pass_on_is_told_again",),
    ),
    Mutant(
        "an effect or step that counts although its caller did not hear of it",
        "supervisor/socket/script_calls.py",
        ' and last.delivery.look() == "lost" else count + 1\n',
        " and False else count + 1\n",
        (
            f"{HEARD}::test_an_effect_whose_caller_never_heard_of_it_is_the_next_call_of_its_name",
            f"{HEARD}::test_a_step_whose_caller_never_heard_of_it_is_the_next_call_of_its_name",
        ),
    ),
    Mutant(
        "another command under the name of a step that nobody heard of, not run",
        "supervisor/socket/script_calls.py",
        "(last.occurrence, last.words) == (count, words)",
        "last.occurrence == count",
        (f"{HEARD}::test_another_command_under_the_same_name_is_run_all_the_same",),
    ),
    Mutant(
        "a program that is ordered although its shim has left",
        f"{CALLS}/programs.py",
        "        if answer.allowed and delivery.is_there():\n",
        "        if answer.allowed:\n",
        (f"{AT_ONCE}::test_a_program_whose_shim_left_before_its_intent_was_durable_is_not_run_and_not_in_doubt",),
    ),
    Mutant(
        "a call too many that ends the attempt",
        f"{CALLS}/calls.py",
        "            if self.is_full and not waits:\n                raise NoRoom\n",
        "",
        (f"{AT_ONCE}::test_a_call_that_does_not_fit_on_record_is_refused_alone",),
    ),
    Mutant(
        "a call too many that nobody lets wait",
        f"{CALLS}/programs.py",
        "            waited = self._ended.wait(rest_s)\n",
        "            break\n",
        (f"{AT_ONCE}::test_a_program_waits_for_room_as_long_as_its_shim_waits",),
    ),
    # -- what only a sub-agent heard
    Mutant(
        "a call of a sub-agent, known to an agent that never heard of it",
        f"{CALLS}/history.py",
        "            or effect in of_subagents\n",
        "",
        (
            f"{SUBAGENTS}::test_what_it_did_is_answered_once_and_not_made_again",
            f"{SUBAGENTS}::test_a_program_below_a_sub_agents_script_is_known_no_more_than_its_calls",
        ),
    ),
    Mutant(
        "an answer that a sub-agent did not pass on, heard",
        f"{CALLS}/history.py",
        " and effect not in of_subagents\n",
        "\n",
        (f"{SUBAGENTS}::test_an_answer_that_a_sub_agent_got_and_did_not_pass_on_is_given_again",),
    ),
    Mutant(
        "a result in a sub-agent's transcript that its agent is not told",
        f"{CALLS}/interruptions.py",
        " and record.id not in of_subagents\n",
        "\n",
        (f"{SUBAGENTS}::test_it_is_told_also_where_the_result_stands_in_a_transcript_beside_that_of_its_agent",),
    ),
    Mutant(
        "a call of a sub-agent, known by the end of another sub-agent",
        f"{CALLS}/subagents.py",
        "        if not all(self._went_well(each) for each in around):\n",
        "        if not any(self._went_well(each) for each in around):\n",
        (f"{SUBAGENTS}::test_of_two_at_once_what_the_one_did_is_not_known_by_the_end_of_the_other",),
    ),
    Mutant(
        "a call of a sub-agent that runs apart, known by the end of another call",
        f"{CALLS}/subagents.py",
        " and not named.get(lane, call.ended) < call.ended)\n",
        ")\n",
        (f"{SUBAGENTS}::test_what_one_that_runs_apart_did_is_not_known",),
    ),
    Mutant(
        "a call that a CLI said had failed as it was stopped, taken for its sub-agent's last words",
        f"{CALLS}/subagents.py",
        '        return not isinstance(result, dict) or result.get("ok") is not False\n',
        "        return True\n",
        (f"{SUBAGENTS}::test_a_failure_of_the_call_that_began_it_tells_nothing_of_what_it_did",),
    ),
)  # fmt: skip
