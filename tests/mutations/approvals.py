"""The breaks of what makes a call wait for a person, be bound to its approval, and pass once."""

from tests.mutations.mutant import SUPERVISOR, Mutant

CALLS = f"{SUPERVISOR}/test_call_approvals.py"
GUARDED = f"{SUPERVISOR}/test_guarded_approvals.py"
CLAUDE = "tests/agents/test_claude.py"
APPROVALS = "supervisor/agent/approvals.py"
PROGRAMS = "supervisor/agent/calls/programs.py"
ONCE = f"{CALLS}::test_approved_the_call_passes_once_and_is_asked_about_again_later"
OTHERS = f"{CALLS}::test_an_approval_covers_no_other_call"
ASIDE = f"{CALLS}::test_one_call_is_put_aside_and_all_others_that_wait_are_denied"
PARTS = f"{CALLS}::test_an_approval_of_two_acts_covers_no_single_one_of_them"

MUTANTS = (
    Mutant(
        "an approval that no intent uses up",
        "supervisor/agent/calls/calls.py",
        "uptime_s=journal.uptime_s(), approved=record.approved,",
        "uptime_s=journal.uptime_s(),",
        (ONCE,),
    ),
    Mutant(
        "a call that waits, let through",
        PROGRAMS,
        "                if ruling.words:\n",
        "                if ruling.words and not ruling.is_open:\n",
        (f"{CALLS}::test_a_call_whose_class_waits_is_denied_with_words_and_asked_about",),
    ),
    Mutant(
        "a question that is asked when its agent has heard of it",
        APPROVALS,
        "        run.drive(append(event))\n        faults.point",
        "        import threading; threading.Timer(0.5, lambda: run.drive(append(event))).start()\n        faults.point",
        (f"{CALLS}::test_the_question_is_durable_before_the_agent_hears_of_it",),
    ),
    Mutant(
        "a call with two reports that uses two approvals",
        PROGRAMS,
        "        if self._calls.is_under_way(start.id, record):\n            return PASSES\n        return self._approvals",
        "        return self._approvals",
        (f"{CALLS}::test_two_reports_of_one_approved_call_use_one_approval",),
    ),
    Mutant(
        "an approval that covers a call that does more",
        APPROVALS,
        "            if found is None:\n                return False\n            left.remove(found)\n        return not left\n",
        "            if found is not None:\n                left.remove(found)\n        return not left\n",
        (OTHERS,),
    ),
    Mutant(
        "an approval that covers a part of its call",
        APPROVALS,
        "        return not left\n\n",
        "        return True\n\n",
        (PARTS,),
    ),
    Mutant(
        "an approval of one act that covers two like it",
        APPROVALS,
        "            left.remove(found)\n",
        "            pass\n        left = []\n",
        (OTHERS,),
    ),
    Mutant(
        "an approval of one act that covers a loop of it",
        APPROVALS,
        "        if not is_verbatim and (_may",
        "        if False and (_may",
        (OTHERS,),
    ),
    Mutant(
        "a call at which an attempt ends, and that nobody records as not made",
        PROGRAMS,
        "            self._failures.guarded(partial(self._records.refuse, start, record, words))\n",
        "",
        (f"{CALLS}::test_a_call_that_waits_and_is_made_again_and_again_ends_the_attempt",),
    ),
    Mutant(
        "an approval that a fork may use too",
        "operations/fork.py",
        "    ev.QuestionAsked, ev.QuestionAnswered,",
        "   ",
        (
            "tests/operations/test_fork.py::test_a_fork_does_not_get_the_approval_that_its_source_has_not_used_yet",
        ),
    ),
    Mutant(
        "an approval of a call whose content nobody knows that covers any",
        APPROVALS,
        '        kinds = {"same", "unclear"} if is_verbatim else {"same"}\n',
        '        kinds = {"same", "unclear"}\n',
        (f"{CALLS}::test_what_nobody_knows_before_it_runs_is_bound_by_every_word", OTHERS),
    ),
    Mutant(
        "an answer that waits in the inbox and is not taken in",
        APPROVALS,
        "            self._run.drive(self._run.take_findings())\n        self.expire()",
        "            pass\n        self.expire()",
        (f"{CALLS}::test_an_approval_that_comes_while_the_agent_works_lets_the_next_such_call_pass",),
    ),
    Mutant(
        "a rejected call that is asked about again",
        APPROVALS,
        'question.answer == "expired" and question.id in self._heard):\n            question = self._ask(',
        'question.answer != "approved" and question.id in self._heard):\n            question = self._ask(',
        (f"{CALLS}::test_rejected_the_agent_is_told_why_and_the_same_call_is_not_asked_about_again",),
    ),
    Mutant(
        "an agent that ends while a call waits, and is done",
        "supervisor/agent/attempt.py",
        '        else:\n            self.responses.finish({"exit_code": 0}, accept_unknown=self._agent.launch.accept_unknown)\n        with self._lock:\n            self._approvals.finish()\n',
        '        else:\n            self.responses.finish({"exit_code": 0}, accept_unknown=self._agent.launch.accept_unknown)\n',
        (f"{CALLS}::test_an_agent_that_ends_while_a_call_waits_is_not_done",),
    ),
    Mutant(
        "an agent that ends without having heard an answer, and is done",
        APPROVALS,
        "        return bool(qs.open_among(questions) or answered & self._unheard)\n",
        "        return bool(qs.open_among(questions))\n",
        (f"{CALLS}::test_an_agent_that_ends_without_having_heard_an_answer_goes_on",),
    ),
    Mutant(
        "a call that waits, made again for ever",
        APPROVALS,
        "        if self._refused[question.id] >= REPEATS_MAX:\n",
        "        if False:\n",
        (
            f"{CALLS}::test_a_call_that_waits_and_is_made_again_and_again_ends_the_attempt",
            f"{GUARDED}::test_a_command_that_tries_the_same_call_for_ever_is_ended",
        ),
    ),
    Mutant(
        "an open question that is forgotten for a new one",
        APPROVALS,
        "        if len(qs.open_among(run.state.questions)) >= qs.QUESTIONS_MAX:\n            return None\n",
        "",
        (f"{CALLS}::test_no_open_question_is_forgotten_when_no_more_fit",),
    ),
    Mutant(
        "two calls of one session that are put aside",
        APPROVALS,
        ' and self.put_aside in ("", start.id)\n',
        "\n",
        (ASIDE,),
    ),
    Mutant(
        "a call of a sub-agent that is put aside",
        APPROVALS,
        "is_it = self.defers and not start.lane and",
        "is_it = self.defers and",
        (ASIDE,),
    ),
    Mutant(
        "a call with a result that its session asks about again all the same",
        "agents/claude/lines.py",
        "    mending.forget_aside({cut.id for cut in main})\n",
        "",
        (f"{CLAUDE}::test_a_call_that_was_put_aside_and_is_given_a_result_is_put_aside_no_longer",),
    ),
    Mutant(
        "a version of Claude Code that may not know how to put a call aside, asked to",
        "agents/claude/cli.py",
        "            printing and bool(ask.hook) and _version(ask) >= LATER and",
        "            printing and bool(ask.hook) and",
        (
            f"{CLAUDE}::test_only_a_version_that_was_tried_puts_calls_aside_and_only_where_nobody_is_at_the_terminal",
        ),
    ),
    Mutant(
        "a session resumed without a prompt although its call was let through since",
        "supervisor/agent/session/reconcile.py",
        "    if not calls or not all(call.waits for call in calls):\n",
        "    if not calls:\n",
        (f"{CALLS}::test_a_call_that_was_let_through_since_is_told_of_and_not_asked_about_again",),
    ),
    Mutant(
        "a guarded command that fails while its call waits, tried again and again",
        "supervisor/agent/guard.py",
        "            if self._approvals.has_waiting:\n                self._approvals.finish()\n",
        "            pass\n",
        (f"{GUARDED}::test_it_does_not_hang_but_rests_until_somebody_answers_and_each_call_is_made_once",),
    ),
    Mutant(
        "a command that ended before it met an answer, and waits although there is one",
        "supervisor/supervisor.py",
        "        heard = came or (isinstance(error, WaitsForPerson) and not error.questions)\n",
        "        heard = came\n",
        (f"{GUARDED}::test_answered_while_it_works_it_goes_on_by_itself_when_it_ends",),
    ),
    Mutant(
        "a guarded command that fails because a call was rejected, tried again and again",
        "supervisor/agent/guard.py",
        "        if self._approvals.rejection:",
        "        if False:",
        (f"{GUARDED}::test_rejected_its_program_is_refused_with_the_reason_and_the_command_fails",),
    ),
    Mutant(
        "a session resumed without a prompt that does not hear what else was answered",
        "supervisor/agent/start.py",
        "            self._approvals.tell_later()\n",
        "            pass\n",
        (f"{CALLS}::test_resumed_without_a_prompt_an_agent_hears_what_else_was_answered",),
    ),
)
