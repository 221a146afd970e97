"""The breaks of a person in the loop: who approves what, once, before it is done."""

from tests.mutations.mutant import Mutant

FOLD = "tests/core/test_questions.py"
RUNS = "tests/runs/test_person.py"
HOST = "tests/supervisor/test_person.py"
CRASH = "tests/crash/test_person.py"

MUTANTS = (
    Mutant(
        "an act is performed while its approval is open",
        "runs/engine/questions.py",
        "    if found.is_open:\n        raise waits(port.run, (found,))\n",
        "    if found.is_open:\n        return msgspec.structs.replace(found, answer='approved')\n",
        (f"{RUNS}::test_an_act_is_performed_once_and_only_after_its_approval_is_on_record",),
    ),
    Mutant(
        "an approval is never used up",
        "core/state.py",
        "            left = qs.after_use(state.questions, event.approved)\n",
        "            left = state.questions\n",
        (f"{FOLD}::test_a_call_passes_by_the_first_answer_and_once",),
    ),
    Mutant(
        "an intent does not name its approval",
        "runs/effects.py",
        "            approved=approved,\n",
        "",
        (f"{CRASH}::test_each_question_is_asked_once_and_each_approved_act_is_done_once",),
    ),
    Mutant(
        "an approval counts for any arguments",
        "runs/engine/questions.py",
        "    bound = digest(msgspec.json.encode((name, key, arguments)))\n",
        "    bound = digest(msgspec.json.encode((name, key)))\n",
        (f"{RUNS}::test_an_approval_counts_for_these_arguments_alone",),
    ),
    Mutant(
        "a rejected act is performed",
        "runs/engine/questions.py",
        '    if found.answer == "approved":\n        return found.id\n',
        "    if not found.is_open:\n        return found.id\n",
        (f"{RUNS}::test_a_rejected_act_is_never_performed_and_the_program_reads_why",),
    ),
    Mutant(
        "the last answer counts",
        "core/questions.py",
        "        if each.id != event.id or not each.is_open:\n",
        "        if each.id != event.id:\n",
        (f"{FOLD}::test_a_call_passes_by_the_first_answer_and_once",),
    ),
    Mutant(
        "a deadline is no answer",
        "core/questions.py",
        "        if each.is_overdue(now)\n",
        "        if False\n",
        (f"{RUNS}::test_nobody_in_time_is_a_rejection_at_the_next_start",),
    ),
    Mutant(
        "a waiting run is started again",
        "supervisor/attempt/limits.py",
        '    if state.status == "parked" and verdict.is_waiting(state, journal.now()):\n',
        "    if False:\n",
        (f"{HOST}::test_a_script_waits_without_a_process_and_goes_on_when_it_is_approved",),
    ),
    Mutant(
        "a call that waits returns to its script",
        "supervisor/client/script.py",
        "    while os.getppid() == above and not poll.poll(tick_s * 1000):\n        pass\n",
        "",
        (f"{HOST}::test_no_line_behind_a_call_that_waits_is_run",),
    ),
    Mutant(
        "a person who resumes after the time is over is asked nothing",
        "operations/requests.py",
        "        asks_again = _asks_again(journal)\n",
        "        asks_again = False\n",
        (f"{HOST}::test_nobody_in_time_and_a_person_who_resumes_is_asked_again",),
    ),
    Mutant(
        "what is asked steers the terminal of the script",
        "supervisor/client/script.py",
        'f"outlast: {safe(text)}\\n"',
        'f"outlast: {text}\\n"',
        (f"{HOST}::test_what_is_asked_steers_no_terminal",),
    ),
    Mutant(
        "a person approves a call whose end they cannot see",
        "acts/approve.py",
        "    all_of_it = inspect_questions.whole_call(store, root, question.id)\n",
        '    all_of_it = ""\n',
        (f"{HOST}::test_a_dry_run_shows_a_call_to_its_last_word",),
    ),
    Mutant(
        "the id of a question is taken for its answer",
        "acts/approve.py",
        "    if not wanted:\n        _refuse_id(root, word, text)\n",
        "",
        (f"{HOST}::test_a_long_question_is_shown_whole_and_the_hint_can_be_typed",),
    ),
    Mutant(
        "an attempt that came to a question counts for nothing",
        "core/state.py",
        "        return msgspec.structs.replace(state.past, fruitless=0)\n",
        "        return state.past\n",
        ("tests/core/test_verdict.py::test_an_attempt_that_came_to_a_question_was_not_in_vain",),
    ),
    Mutant(
        "an agent approves its own call",
        "acts/approve.py",
        "    refuse_inside(store)\n",
        "",
        (f"{HOST}::test_what_a_run_started_answers_nobodys_questions",),
    ),
    Mutant(
        "only the mark in its own environment says that a process is inside a run",
        "acts/approve.py",
        "    if within or (within := run_around(store, os.getpid())):\n",
        "    if within:\n",
        (f"{HOST}::test_what_a_run_started_answers_nobodys_questions",),
    ),
    Mutant(
        "typed again without the option nothing waits any more",
        "supervisor/start.py",
        "        return terms, approvals.on_top(\n            msgspec.structs.replace(launch, guard=launch.guard or was_guarded), last\n        )\n",
        "        return terms, msgspec.structs.replace(launch, guard=launch.guard or was_guarded)\n",
        (f"{HOST}::test_what_was_to_wait_at_the_first_start_waits_in_every_later_one",),
    ),
    Mutant(
        "a run whose time is over is said to go on when it is answered",
        "acts/approve.py",
        "    if verdict.is_out_of_budget(root.state, now, children):",
        "    if False:",
        (
            "tests/supervisor/test_person.py::test_a_run_whose_time_is_over_says_so_when_it_is_answered_and_goes_on_with_more",
        ),
    ),
    Mutant(
        "a run of another user started by root's answer",
        "acts/approve.py",
        "        if other := _other_user(self.store, run):\n",
        "        if other := '':\n",
        (f"{HOST}::test_a_run_of_another_user_is_answered_and_not_started_as_root",),
    ),
    Mutant(
        "a run of another store answers here",
        "acts/approve.py",
        "        if run := _supervised_by(each.pid):\n",
        "        if run := '':\n",
        (f"{HOST}::test_what_a_run_of_another_store_started_answers_no_questions_here",),
    ),
)
