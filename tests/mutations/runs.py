"""The breaks of Python runs: which run a start means, leftovers of acts; and of an agent's end."""

from tests.mutations.mutant import RUNS, SUPERVISOR, Mutant

LEFTOVERS = f"{RUNS}/test_leftovers.py"
OTHERS = f"{SUPERVISOR}/test_other_users.py"
INSIDE = "tests/shell/test_runs_inside.py"
DECODERS = "tests/core/test_decoders.py"
AT_ONCE = f"{DECODERS}::test_threads_that_first_decode_a_type_at_once_all_get_it"

MUTANTS = (
    Mutant(
        "a probe that is believed where no process can be seen",
        "runs/engine/leftovers.py",
        '        return ("a process that cannot be seen, as there is no /proc",)\n',
        "        return ()\n",
        (f"{LEFTOVERS}::test_without_proc_nobody_knows_that_an_act_of_a_dead_program_is_over",),
    ),
    Mutant(
        "a process with a title over its environment, taken for none of ours",
        "processes/proc.py",
        "    return bool(data) and _VARIABLE.match(data) is None\n",
        "    return False\n",
        (
            f"{LEFTOVERS}::test_one_that_hides_its_environment_and_was_started_since_leaves_the_effect_in_doubt",
        ),
    ),
    Mutant(
        "a process that may not be read, taken for none of ours",
        "processes/proc.py",
        "    except PermissionError:\n        return True\n    except _GONE:\n        return False\n",
        "    except _GONE:\n        return False\n",
        (f"{LEFTOVERS}::test_one_that_may_not_be_read_is_hidden_from_its_own_user",),
    ),
    Mutant(
        "every worker of a browser, taken for what an act left",
        "processes/reap.py",
        "        if parent is None or parent.ppid <= _FIRST or parent.pid in above:\n",
        "        if True:\n",
        (f"{LEFTOVERS}::test_what_a_living_program_that_is_older_started_is_no_act_of_a_dead_one",),
    ),
    Mutant(
        "a request that is half taken in while a call is judged",
        "supervisor/attempt/stop.py",
        "        with self._beats.lock:  # else a call",
        "        if True:  # else a call",
        (
            f"{SUPERVISOR}/test_other_calls.py::test_what_was_said_is_not_half_taken_in_while_a_call_is_judged",
        ),
    ),
    # -- runs inside runs
    Mutant(
        "a run inside that is woken without the run around it",
        "supervisor/control/wake.py",
        "    if wakes and (around := _open_around(store, summary)):\n",
        "    if not wakes and (around := _open_around(store, summary)):\n",
        (f"{INSIDE}::test_killed_with_its_script_it_is_not_woken_alone_and_goes_on_with_the_script",),
    ),
    Mutant(
        "a run inside that is refused its script's folder",
        "supervisor/start.py",
        "        if around and _works_inside(store, occupant(private), around):\n",
        "        if not around and _works_inside(store, occupant(private), around):\n",
        (f"{INSIDE}::test_it_works_in_the_folder_of_its_script_and_done_is_done",),
    ),
    Mutant(
        "a budget that does not count what a run inside spent",
        "core/budget.py",
        "    spent = state.spent.plus(state.spent_inside)\n",
        "    spent = state.spent\n",
        (
            "tests/core/test_budget.py::test_what_a_run_inside_spent_counts_against_the_budget_and_not_as_spent_again",
        ),
    ),
    # -- which run a start means
    Mutant(
        "a run that is looked up by its project alone",
        "runs/opening/identity.py",
        "    if terms.project_given:\n",
        "    if terms.project_given or terms.project:\n",
        (f"{RUNS}/test_identity.py::test_whatever_becomes_of_the_repository_the_act_is_done_once",),
    ),
    Mutant(
        "two runs that may be one, and the first is taken",
        "runs/opening/identity.py",
        "    if len(going) > 1:\n",
        "    if len(going) > 2:\n",
        (
            f"{RUNS}/test_identity.py::test_two_runs_that_may_be_one_are_refused_with_both_named_until_one_is_cancelled",
        ),
    ),
    Mutant(
        "a program in another folder that is taken for a new run",
        "runs/opening/identity.py",
        "    if perhaps:\n",
        "    if len(perhaps) > 1:\n",
        (
            f"{RUNS}/test_identity.py::test_a_program_started_in_another_folder_is_refused_until_a_person_chooses",
        ),
    ),
    Mutant(
        "an empty folder called .git that counts as a repository",
        "workspace/git/layout.py",
        "        return Layout(folder, own, _common(own)) if is_git_folder(own) else None\n",
        "        return Layout(folder, own, _common(own))\n",
        (f"{RUNS}/test_identity.py::test_what_a_repository_is_git_and_we_say_alike",),
    ),
    # -- what an act left running
    Mutant(
        "what an act started carries no mark",
        "runs/engine/drivers.py",
        "        with journal.lease.guard(), marked(journal.lease):\n",
        "        with journal.lease.guard():\n",
        (
            f"{LEFTOVERS}::test_what_a_killed_programs_act_started_is_stopped_before_the_act_is_done_again[setsid]",
        ),
    ),
    Mutant(
        "what an act of an async run started carries no mark",
        "runs/engine/drivers.py",
        "            held.enter_context(marked(journal.lease))\n",
        "",
        (
            f"{LEFTOVERS}::test_what_a_killed_programs_act_started_is_stopped_before_the_act_is_done_again[async]",
        ),
    ),
    Mutant(
        "a fork that cannot be found",
        "store/locks.py",
        "            os.open(_act_path(self.path), os.O_RDONLY | os.O_CLOEXEC)\n",
        "            pass\n",
        (
            f"{LEFTOVERS}::test_what_a_killed_programs_act_started_is_stopped_before_the_act_is_done_again[fork]",
        ),
    ),
    Mutant(
        "a leftover that lives, and a did-not that counts",
        "runs/effects.py",
        '        self._leftovers = ", ".join(found.left)\n',
        "",
        (f"{LEFTOVERS}::test_one_that_belongs_to_an_act_of_another_run_too_leaves_the_effect_in_doubt",),
    ),
    Mutant(
        "did-nots of earlier attempts that count as failures",
        "core/recovery.py",
        "            again = facts.denied <= max(facts.retries, REISSUES_MAX)\n",
        "            again = max(facts.denied, record.intent.attempt) <= max(facts.retries, REISSUES_MAX)\n",
        (f"{LEFTOVERS}::test_killed_ever_so_often_before_the_call_the_act_is_done_in_the_end",),
    ),
    Mutant(
        "a failure that the program was told of, and that is tried again",
        "core/recovery.py",
        "record.failures <= facts.retries and not record.final",
        "record.failures <= max(facts.retries, 2)",
        (f"{LEFTOVERS}::test_a_person_can_settle_what_the_probe_denied_and_what_failed",),
    ),
    Mutant(
        "a failed act that no person can settle",
        "operations/requests.py",
        """    return is_open and effect.state == "failed" and effect.settled_by in ("", "probe")\n""",
        "    return False\n",
        (f"{LEFTOVERS}::test_a_person_can_settle_what_the_probe_denied_and_what_failed",),
    ),
    # -- how an agent ends
    Mutant(
        "an exit with 0 in an open call that is done",
        "supervisor/agent/attempt.py",
        "            if self.calls.is_busy:\n",
        "            if False:\n",
        (
            f"{SUPERVISOR}/test_stopped_in_a_call.py::test_an_exit_with_0_in_an_open_call_is_not_done_whatever_its_model_said_of_it",
        ),
    ),
    Mutant(
        "an exit with 0 without a last word that is done",
        "supervisor/agent/attempt.py",
        "            unheard = self.responses.awaits_answer and (self._observer.answered or not tail.strip())\n",
        "            unheard = False\n",
        (
            f"{SUPERVISOR}/test_stopped_in_a_call.py::test_an_exit_with_0_after_a_call_and_before_a_last_word_is_not_done",
        ),
    ),
    Mutant(
        "PWD as it was where the run is resumed",
        "supervisor/attempt/command.py",
        "    found = settings.went_to(_environment(run, variables, place), cwd)\n",
        "    found = _environment(run, variables, place)\n",
        (f"{SUPERVISOR}/test_working_directory.py",),
    ),
    Mutant(
        "what a call left in the background is not looked for",
        "supervisor/agent/calls/calls.py",
        "        return self.processes.found(opened.began_s)\n",
        "        return ()\n",
        (f"{SUPERVISOR}/test_background_effects.py",),
    ),
    Mutant(
        "what a call left in the background is not waited for",
        "supervisor/attempt/attempt.py",
        "                watch.let_background_end()\n",
        "                pass\n",
        (
            f"{SUPERVISOR}/test_background_effects.py::test_what_reaches_outside_in_the_background_is_waited_for_when_the_agent_ends",
        ),
    ),
    Mutant(
        "what we stopped ourselves counts as ended",
        "supervisor/agent/calls/calls.py",
        "            self.processes = None\n",
        "            pass\n",
        (
            f"{SUPERVISOR}/test_background_effects.py::test_what_reaches_outside_in_the_background_and_never_ends_is_named_as_in_doubt",
        ),
    ),
    Mutant(
        "of two alike in the background neither covers a program",
        "supervisor/agent/calls/open_call.py",
        "    if all(each.recorded == found[0].recorded for each in found):\n",
        "    if False:\n",
        (
            f"{SUPERVISOR}/test_background_calls.py::test_of_two_alike_either_counts_where_nobody_knows_which_left_the_program",
        ),
    ),
    Mutant(
        "what never began in the background counts as done",
        "supervisor/agent/calls/calls.py",
        "        if not end.ok or opened.lost or not any(each.apart for each in opened.unseen):\n",
        "        if True:\n",
        (
            f"{SUPERVISOR}/test_background_effects.py::test_killed_in_the_background_before_it_began_it_is_in_doubt",
        ),
    ),
    Mutant(
        "what stands before a `&` counts as waited for",
        "agents/outward/shell/parser.py",
        '        if letter == "&" and run == 1:\n',
        "        if False:\n",
        (
            "tests/agents/outward/test_classes.py::test_what_nobody_waits_for_is_known",
            f"{SUPERVISOR}/test_background_effects.py::test_killed_in_the_background_before_it_began_it_is_in_doubt",
        ),
    ),
    # -- other users
    Mutant(
        "a planted link for the socket is followed",
        "store/local.py",
        "        folder_stat = os.lstat(folder)\n",
        "        folder_stat = os.stat(folder)\n",
        (f"{OTHERS}::test_a_long_state_path_takes_no_folder_that_was_planted_for_its_socket",),
    ),
    Mutant(
        "a hook that believes anybody",
        "supervisor/client/hook.py",
        "        refuse_stranger(there)\n",
        "",
        (f"{OTHERS}::test_a_hook_does_not_believe_another_user_who_allows_everything",),
    ),
    Mutant(
        "a shim that believes anybody",
        "supervisor/client/shim.py",
        "        _refuse_stranger(self._sock)\n",
        "",
        (f"{OTHERS}::test_nor_does_a_shim_or_a_script",),
    ),
    Mutant(
        "a worktree in a planted folder",
        "supervisor/worktree/make.py",
        "    if status.st_uid not in ours or open_to_others:\n",
        "    if False:\n",
        (f"{OTHERS}::test_a_worktree_is_not_made_in_a_folder_that_another_user_planted",),
    ),
    Mutant(
        "a planted repository gets the saves",
        "workspace/repo.py",
        "    found = own(folder) if has_own and not why else None\n",
        "    found = own(folder) if has_own else None\n",
        (f"{OTHERS}::test_a_repository_that_another_user_planted_gets_no_saves",),
    ),
    Mutant(
        "a planted repository above is the workspace",
        "workspace/repo.py",
        "            return here if here == real or not distrusted(here) else real\n",
        "            return here\n",
        (f"{OTHERS}::test_a_repository_that_another_user_planted_gets_no_saves",),
    ),
    Mutant(
        "idle strangers that are never sent away",
        "gateway/relay.py",
        "        if len(strangers) >= STRANGERS_MAX:\n",
        "        if False:\n",
        ("tests/gateway/test_hostile.py::test_a_crowd_that_only_connects_does_not_keep_the_agent_out",),
    ),
    Mutant(
        "settings of a stranger",
        "settings.py",
        "        if path.is_file() and _is_trusted(path, folder):\n",
        "        if path.is_file():\n",
        ("tests/supervisor/test_other_users.py::test_settings_that_another_user_planted_above_do_not_count",),
    ),
    # -- decoding by type, in several threads
    Mutant(
        "JSON decoders made without the lock",
        "decoders.py",
        "        with _describing:\n            found = _of_json.",
        "        if True:\n            found = _of_json.",
        (f"{AT_ONCE}[json]",),
    ),
    Mutant(
        "MessagePack decoders made without the lock",
        "decoders.py",
        "        with _describing:\n            found = _of_msgpack.",
        "        if True:\n            found = _of_msgpack.",
        (f"{AT_ONCE}[msgpack]",),
    ),
    Mutant(
        "values converted to a type that is not described yet",
        "decoders.py",
        "    return msgspec.convert(value, of_msgpack(wanted).type, strict=strict)\n",
        "    return msgspec.convert(value, wanted, strict=strict)\n",
        (f"{AT_ONCE}[plain]",),
    ),
    Mutant(
        "a fork while a type is described",
        "decoders.py",
        "os.register_at_fork(\n",
        "dict(\n",
        (f"{DECODERS}::test_a_child_forked_while_a_type_is_described_decodes_it",),
    ),
    Mutant(
        "writers of one store do not queue",
        "store/sqlite/store.py",
        "turn=local.turn)",
        "turn=None)",
        ("tests/store/test_turns.py::test_every_writer_waits_for_its_turn",),
    ),
    Mutant(
        "each write waits for a turn that never comes",
        "store/sqlite/turns.py",
        "self._without_until_s = time.monotonic() + self._without_s",
        "self._without_until_s = 0.0",
        ("tests/store/test_turns.py::test_a_holder_that_is_killed_or_stopped_keeps_nobody_from_writing",),
    ),
    Mutant(
        "who gave up waiting keeps the turn when it comes",
        "store/sqlite/turns.py",
        "            if self._has_left:\n                self._give_back()\n",
        "",
        ("tests/store/test_turns.py::test_who_gave_up_waiting_passes_the_turn_on_when_it_comes",),
    ),
    Mutant(
        "a living agent is stopped because the store is busy",
        "supervisor/supervisor.py",
        "        notices.listen(notices.Listener(self._waits_for_store, person.say))\n",
        "",
        ("tests/supervisor/test_busy_store.py::test_an_agent_is_not_stopped_because_the_store_is_busy",),
    ),
    Mutant(
        "a log that a reader held up stays long",
        "store/sqlite/database.py",
        '            connection.pragma("journal_size_limit", log_readers.FLOOR_BYTES)\n',
        "",
        ("tests/store/test_log_readers.py",),
    ),
    Mutant(
        "nobody says who keeps the log from being reset",
        "store/sqlite/leases.py",
        "        self._log.look()\n",
        "",
        ("tests/store/test_log_readers.py",),
    ),
    Mutant(
        "each wait for a turn leaves a thread standing",
        "store/sqlite/turns.py",
        "self._left = None if self._waiter.leave() else self._waiter",
        "self._left = None if self._waiter.leave() else None",
        ("tests/store/test_turns.py::test_a_turn_that_never_comes_is_waited_for_by_one_thread",),
    ),
    Mutant(
        "who comes back to its place gives its turn away",
        "store/sqlite/turns.py",
        "            self._has_left = False\n            return True\n",
        "            return True\n",
        ("tests/store/test_turns.py::test_who_comes_back_has_kept_its_place",),
    ),
    Mutant(
        "a store that cannot be opened leaves its turn's files open",
        "store/sqlite/database.py",
        "        self._identity = _identity(path)\n",
        "        self._identity = _identity(path)\n        self._turns = Turns(turn, 1, 1) if turn else None\n",
        ("tests/store/test_turns.py::test_a_store_that_cannot_be_opened_leaves_no_file_open",),
    ),
    Mutant(
        "a renewal counts from when it was asked for",
        "store/sqlite/leases.py",
        "        def prolong(connection: apsw.Connection) -> dict[str, str]:\n            now = locks.boottime_s()",
        "        now = locks.boottime_s()\n\n        def prolong(connection: apsw.Connection) -> dict[str, str]:",
        ("tests/store/test_turns.py::test_a_lease_counts_from_when_it_was_written_however_long_that_took",),
    ),
    Mutant(
        "a claim counts from when it was asked for",
        "store/sqlite/leases.py",
        "        def take(connection: apsw.Connection) -> tuple[int, float, int | None]:\n            now = locks.boottime_s()",
        "        now = locks.boottime_s()\n\n        def take(connection: apsw.Connection) -> tuple[int, float, int | None]:",
        ("tests/store/test_turns.py::test_a_lease_counts_from_when_it_was_written_however_long_that_took",),
    ),
)
