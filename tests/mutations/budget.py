"""The breaks of the ledger, of the wrap-up, of the gateway and of the walls."""

from tests.mutations.mutant import Mutant

CORE = "tests/core/test_budget.py"
RUN_BUDGET = "tests/runs/test_budget.py"
COMMAND = "tests/supervisor/test_command_budget.py"
WRAP_UP = "tests/supervisor/test_wrap_up.py"

MUTANTS = (
    Mutant(
        "a hint that gives no more of a window than was used",
        "core/budget.py",
        "    if line.spent < 10_000 - 100 * reserve_pct:\n",
        "    if True:\n",
        (f"{CORE}::test_what_to_type_for_more_of_a_window_lets_the_run_go_on",),
    ),
    Mutant(
        "an attempt that is lost costs nothing",
        "core/budget.py",
        "    if not charge.tokens and not cost:\n        return Usage()\n",
        "    return Usage()\n",
        (RUN_BUDGET, CORE),
    ),
    Mutant(
        "what is on record of a lost beat is charged again",
        "core/budget.py",
        "    beat = beat.minus(state.open_spent.minus(attempt.owed))\n",
        "",
        (RUN_BUDGET, CORE),
    ),
    Mutant(
        "earlier attempts of a beat pay for the later ones",
        "core/state.py",
        "                owed=state.open_spent,\n",
        "",
        (CORE, RUN_BUDGET),
    ),
    Mutant(
        "what a failed beat had spent is forgotten",
        "runs/budget.py",
        "        spent = beat.staged_spend if beat is not None and not beat.closed else Usage()\n",
        "        spent = Usage()\n",
        (RUN_BUDGET,),
    ),
    Mutant(
        "a level is told again and again",
        "core/budget.py",
        "if each is not None and each.level not in state.warned]",
        "if each is not None]",
        (CORE, RUN_BUDGET),
    ),
    Mutant(
        "nothing is kept for the ending",
        "core/budget.py",
        "    return max(limit * share // 100, min(ENDING_BEATS * beat, limit // 2) if share else 0)\n",
        "    return 0\n",
        (CORE, RUN_BUDGET),
    ),
    Mutant(
        "more budget does not end the wrap-up",
        "core/state.py",
        '"wrap_beat": None, "until_since"',
        '"wrap_beat": state.wrap_beat, "until_since"',
        (CORE,),
    ),
    Mutant(
        "the agent is not told to wrap up",
        "supervisor/budget/enforce.py",
        "            self._pending[:], self._word = [words], words\n",
        "            self._pending[:], self._word = [], \"\"\n",
        (f"{WRAP_UP}::test_it_reads_the_word_once_with_the_result_of_a_call",),
    ),
    Mutant(
        "an agent that does not stop is not stopped",
        "supervisor/budget/enforce.py",
        "        if head.wrap_beat is not None:\n            return self._after_the_word(head)\n",
        "        if head.wrap_beat is not None:\n            return None\n",
        (f"{WRAP_UP}::test_one_that_does_not_stop_is_stopped_within_its_budget",),
    ),
    Mutant(
        "time does not end a command",
        "runs/budget.py",
        "        lived_ms = 0 if self._run.closed else int((time.monotonic() - self._since_s) * 1000)\n",
        "        lived_ms = 0\n",
        (f"{COMMAND}::test_when_its_time_is_over_it_is_saved_stopped_and_goes_on_with_more",),
    ),
    Mutant(
        "the gateway lets every call pass",
        "supervisor/budget/gateway.py",
        "            self.refused = self._over() or self._too_many(reserve)\n",
        '            self.refused = ""\n',
        (f"{COMMAND}::test_a_program_of_ones_own_is_metered_by_the_gateway_and_refused_when_nothing_is_left",),
    ),
    Mutant(
        "a response is counted by the gateway and by the transcript",
        "supervisor/agent/observer.py",
        "            case UsageReport() if self._agent.gate is None:\n",
        "            case UsageReport():\n",
        (f"{WRAP_UP}::test_what_goes_through_the_gateway_is_not_counted_from_the_transcript_too",),
    ),
    Mutant(
        "what an attempt's end is charged with counts again from its transcript",
        "supervisor/agent/start.py",
        "        self._run.meter.was_charged(self._run.state.open_spent)\n",
        "",
        (f"{WRAP_UP}::test_what_the_end_of_an_attempt_is_on_record_with_does_not_count_again_from_its_transcript",),
    ),
    Mutant(
        "an agent that is cut while its model answers costs nothing",
        "runs/budget.py",
        "lost = budgets.charge_for_killed(self._run.state).minus(known) if self.is_cut else Usage()",
        "lost = Usage()",
        (RUN_BUDGET,),
    ),
    Mutant(
        "money is rounded down",
        "operations/prices.py",
        "        return -(-exact // _MILLION)\n",
        "        return exact // _MILLION\n",
        ("tests/operations/test_prices.py",),
    ),
    Mutant(
        "the price of a small request for a large one",
        "operations/prices.py",
        "            if size > tier.above:\n",
        "            if False:\n",
        ("tests/operations/test_prices.py",),
    ),
    Mutant(
        "an unknown price stops a run that has other limits",
        "core/budget.py",
        "    return budget.cost_microusd is not None and all(limit is None for limit in others)\n",
        "    return budget.cost_microusd is not None\n",
        ("tests/supervisor/test_gateway.py::test_a_model_without_a_price_is_said_once_where_other_limits_hold",),
    ),
    Mutant(
        "a session's bill is charged again with each of its processes",
        "supervisor/budget/pricing.py",
        "        return differs * min(billed, sum(self._tokens.values())) // billed\n",
        "        return differs\n",
        (
            "tests/supervisor/test_agent_costs.py::test_of_a_bill_for_a_whole_session_only_the_share_of_this_attempt_counts",
        ),
    ),
    Mutant(
        "a cost leaves the meter before it is on record",
        "supervisor/agent/responses.py",
        "        try:\n            with self._beats.telling_full_disk():\n",
        "        meter.end_settling()\n        try:\n            with self._beats.telling_full_disk():\n",
        ("tests/supervisor/test_agent_costs.py",),
    ),
    Mutant(
        "a beat's end that fails keeps its cost in the beat too",
        "supervisor/agent/responses.py",
        "        beat.metered = meter.begin_settling().total\n",
        "        beat.spend(meter.begin_settling().total)\n",
        ("tests/supervisor/test_agent_costs.py",),
    ),
    Mutant(
        "any event counts as the one that settles a cost",
        "runs/budget.py",
        "and head.spent != before.spent:",
        "and head is not before:",
        ("tests/supervisor/test_agent_costs.py",),
    ),
    Mutant(
        "who stops on request is not charged",
        "runs/inbox.py",
        "evidence=evidence, wanted=True, spent=spent\n",
        "evidence=evidence, wanted=True\n",
        (
            "tests/runs/test_budget.py::test_an_attempt_that_is_stopped_on_request_is_charged_its_time_and_what_its_beat_had_spent",
        ),
    ),
    Mutant(
        "a run that raises its own budget",
        "cli/commands/budget.py",
        "        if arguments.add and _is_inside(store, summary):\n",
        "        if arguments.add and not summary.run:\n",
        ("tests/cli/test_budget.py::test_a_run_cannot_raise_its_own_budget_it_asks_a_person",),
    ),
)  # fmt: skip
