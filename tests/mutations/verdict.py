"""The breaks of the one verdict on a run: what it needs, who is woken, which wall still stands."""

from tests.mutations.mutant import Mutant

TABLE = "tests/core/test_verdict.py"
PERSON = "tests/cli/test_needs_a_person.py"
WALLS = "tests/supervisor/test_quota_walls.py"
WORDS = "tests/cli/test_plain_words.py"
STEP = "tests/cli/test_next_step.py::test_every_surface_names_one_next_step_and_pasted_it_does_what_it_says"

HINTS = "tests/cli/test_hints_elsewhere.py"

MUTANTS = (
    Mutant(
        "doctor sends to doctor",
        "inspect/doctor.py",
        "    if not any(command in error.hint for command in here):\n",
        "    if error.hint:\n",
        (HINTS,),
    ),
    Mutant(
        "a pipe is opened as a database",
        "store/durable.py",
        "    if not stat.S_ISREG(mode):\n",
        "    if stat.S_ISSOCK(mode):\n",
        (f"{HINTS}::test_what_is_no_file_in_the_place_of_the_database_is_refused_by_every_command[a_folder-a folder]",),
    ),
    # -- who needs a person
    Mutant(
        "a doubt that its agent left so is settled by the next attempt",
        "core/verdict.py",
        "    if has_ended_in_doubt(state):\n        return doubts\n",
        "",
        (f"{TABLE}::test_one_verdict_for_every_status_cause_and_open_effect",),
    ),
    Mutant(
        "doctor names only runs in doubt",
        "inspect/doctor.py",
        "    elif stands.verdict.needs_somebody:\n",
        "    elif stands.word == 'unknown':\n",
        (f"{STEP}[failed]",),
    ),
    Mutant(
        "a stalled agent in doubt is only unsettled",
        "core/verdict.py",
        "_counts(others) and NEEDS[word] not in NEEDS_SOMEBODY else word",
        "_counts(others) else word",
        ("tests/inspect/test_standing.py",),
    ),
    Mutant(
        "a guarded command that was given up is resumed with its call held",
        "core/verdict.py",
        "    if not wakes and word in _BEFORE_A_PERSON and held(state):\n",
        "    if False:\n",
        (f"{TABLE}::test_a_call_that_a_guard_holds_is_settled_before_a_person_does_anything_else",),
    ),
    Mutant(
        "a call that a person was asked about is looked up next",
        "core/state.py",
        "event.evidence, looked=event.asks)",
        "event.evidence)",
        (f"{TABLE}::test_a_call_that_a_guard_holds_is_settled_before_a_person_does_anything_else",),
    ),
    Mutant(
        "a failed run in doubt is resumed",
        "core/verdict.py",
        '        case "in_doubt" | "paused" | "parked" | "failed" if _counts',
        '        case "in_doubt" if _counts',
        (f"{TABLE}::test_one_verdict_for_every_status_cause_and_open_effect",),
    ),
    # -- an agent that had finished
    Mutant(
        "a finished agent is asked again although its call happened",
        "supervisor/attempt/attempt.py",
        "            if self._agent is not None and run.state.ended_well:\n",
        "            if self._agent is not None and run.state.ended_well and not run.state.beats:\n",
        (f"{PERSON}::test_settled_as_happened_it_is_checked_and_done_without_asking_a_model_again",),
    ),
    Mutant(
        "a finished agent is not asked again although its call did not happen",
        "core/state.py",
        'well = state.ended_well and event.finding != "did_not"',
        "well = state.ended_well",
        (f"{TABLE}::test_a_finished_agent_goes_on_only_if_its_call_did_not_happen",),
    ),
    # -- what nobody started
    Mutant(
        "a fork is woken that nobody started",
        "core/state.py",
        "self.fork is not None and not self.attempts and",
        "self.fork is not None and self.attempts and",
        (f"{TABLE}::test_what_nobody_started_is_not_woken_whatever_became_of_it",),
    ),
    Mutant(
        "an imported run counts as started",
        "core/state.py",
        'return _set(state, event, start="awaited")',
        "return _set(state, event)",
        (f"{TABLE}::test_what_nobody_started_is_not_woken_whatever_became_of_it",),
    ),
    Mutant(
        "what an older outlast imported counts as started",
        "store/sqlite/queries.py",
        "    return bool(head.run) and not head.start_known and",
        "    return bool(head.run) and head.start_known and",
        ("tests/store/test_sqlite.py::test_an_older_head_tells_how_its_run_was_started",),
    ),
    Mutant(
        "a resume of a fork is not on record",
        "operations/requests.py",
        "        elif journal.state.awaits_start or asks_again or _counts(journal.state):\n",
        "        elif asks_again or _counts(journal.state):\n",
        ("tests/cli/test_never_started.py::test_a_fork_that_was_asked_for_and_killed_before_its_attempt_is_woken",),
    ),
    # -- walls
    Mutant(
        "a wall is lifted by an attempt that began before it",
        "supervisor/budget/quota_walls.py",
        "    if wall is None or (begun_at is not None and begun_at < wall.met_at):\n",
        "    if wall is None:\n",
        (f"{WALLS}::test_an_attempt_that_began_before_the_wall_was_met_does_not_lift_it",),
    ),
    Mutant(
        "a wall stands although the account works again",
        "supervisor/attempt/attempt.py",
        "            limits.lift_wall(self._run.journal.store, self.launch.account, attempt.started_at)\n",
        "            pass\n",
        (f"{WALLS}::test_a_run_that_works_again_lifts_the_wall_for_all_of_its_account",),
    ),
    # -- sums and names
    Mutant(
        "a report without what killed attempts were charged",
        "dashboard/report.py",
        "                did.spent = did.spent.plus(spent)\n",
        "                pass\n",
        (f"{WORDS}::test_show_and_report_have_one_sum_with_what_a_killed_attempt_was_charged_marked_as_an_estimate",),
    ),
    Mutant(
        "a call is told by its tool alone",
        "core/text.py",
        '            parts = ["" if tool == name else tool, _input(rest.get("input"))]\n',
        '            parts = ["" if tool == name else tool]\n',
        (f"{WORDS}::test_effects_show_and_context_name_the_command_of_a_call_with_its_secrets_masked",),
    ),
    Mutant(
        "a guess limits the time",
        "inspect/forecast.py",
        'found.time_s.sure not in ("default", "guess")',
        'found.time_s.sure != "default"',
        (f"{WORDS}::test_a_guess_never_limits_the_time",),
    ),
)  # fmt: skip
