"""The breaks of what sees the programs below a call: shims, their probes, and which call reaches outside at all."""

from tests.mutations.mutant import Mutant

HOOKS = "tests/supervisor/test_hooks.py"
LOOPBACK = "tests/supervisor/test_loopback.py"
SHIMS = "tests/supervisor/test_shims.py"
ISOLATION = "tests/supervisor/test_call_isolation.py"
CLIENT_COPY = "tests/supervisor/test_client_copy.py"
OUTWARD = "tests/agents/outward"
FOLDER = "tests/supervisor/test_shim_folder.py"
REPEATED = "tests/supervisor/test_repeated_calls.py"
OTHERS = "tests/supervisor/test_other_calls.py"
GUARD = "tests/supervisor/test_guard.py"
LEFT = "tests/supervisor/test_left_of_calls.py"

MUTANTS = (
    Mutant(
        "an effect that is over while what its command left runs on",
        "supervisor/socket/server.py",
        'if mark in self._effects and order.do == "run" else ""',
        'if False else ""',
        (f"{LEFT}::test_what_the_command_of_an_effect_left_running_is_waited_for",),
    ),
    Mutant(
        "an effect that is confirmed although what its command left never ended",
        "supervisor/socket/script_calls.py",
        "            if output.left:\n",
        "            if False:\n",
        (f"{LEFT}::test_what_the_command_of_an_effect_left_running_and_never_ends_is_in_doubt",),
    ),
    Mutant(
        "a probe that is believed while a process of its effect lives",
        "runs/engine/leftovers.py",
        "        return Leftovers(left=_on(roster, key))\n",
        "        return Leftovers()\n",
        (f"{LEFT}::test_what_the_command_of_an_effect_left_running_and_never_ends_is_in_doubt",),
    ),
    Mutant(
        "a program that lives on when its shim is killed",
        "supervisor/client/shim.py",
        "        if self._tie is not None:\n",
        "        if False:\n",
        (f"{LEFT}::test_a_program_that_its_caller_stops_ends_with_its_shim[SIGKILL]",),
    ),
    Mutant(
        "a program that is not told to end when its shim is",
        "supervisor/client/shim.py",
        "            if came.si_code == _BY_KERNEL:\n",
        "            if True:\n",
        (f"{LEFT}::test_a_program_that_its_caller_stops_ends_with_its_shim[SIGTERM]",),
    ),
    Mutant(
        "a program in a cleaned environment that nobody finds any more",
        "supervisor/client/shim.py",
        "    mine.setdefault(ATTEMPT, attempt.encode())\n    if program:\n",
        "    if False:\n",
        (
            f"{LEFT}::test_what_a_dead_attempts_program_left_is_stopped_before_its_call_is_made_again[cleaned]",
        ),
    ),
    Mutant(
        "a command of an effect that is not on file",
        "supervisor/socket/server.py",
        "                    self._roster.enter(mark, first)\n",
        "                    pass\n",
        (
            f"{LEFT}::test_the_command_of_an_effect_in_a_cleaned_environment_is_stopped_before_it_is_looked_up",
        ),
    ),
    Mutant(
        "a step whose call was held, recorded as failed for ever",
        "supervisor/socket/server.py",
        " and self._refusals > refusals\n",
        " and False\n",
        (f"{GUARD}::test_a_step_whose_call_was_held_is_done_again_when_that_is_settled",),
    ),
    Mutant(
        "a hook's client that does not know what the user named",
        "supervisor/agent/calls/outward.py",
        "    classes = tuple(filter(None, [classes_for(client)]))\n",
        "    classes = ()\n",
        (f"{HOOKS}::test_without_a_supervisor_what_the_user_named_is_denied_as_well",),
    ),
    Mutant(
        "a shim that runs what nobody recorded",
        "supervisor/client/shim.py",
        '        return _refuse(words, f"it is not on record: {error}")\n',
        "        return _run(real, words)\n",
        (f"{HOOKS}::test_a_shim_without_a_supervisor_runs_nothing",),
    ),
    Mutant(
        "a verdict before the intent",
        "supervisor/agent/calls/programs.py",
        "            self._records.intend(start, record)\n        except",
        "            pass\n        except",
        (f"{HOOKS}::test_a_call_is_on_record_when_its_hook_is_answered[claude]",),
    ),
    Mutant(
        "a call that is allowed although it could not be recorded",
        "supervisor/agent/calls/programs.py",
        "            self._failures.fail(error)\n            if record.outward:\n",
        "            self._failures.fail(error)\n            if False:\n",
        (f"{HOOKS}::test_what_cannot_be_put_on_record_does_not_happen_outside[claude]",),
    ),
    Mutant(
        "a shim that lets an attempt that is over go on",
        "supervisor/client/shim.py",
        "    return mark if mark.rpartition",
        "    return ours if mark.rpartition",
        (f"{SHIMS}::test_a_process_of_an_attempt_that_is_over_reaches_nothing",),
    ),
    Mutant(
        "what was settled an instant ago, not looked at",
        "supervisor/agent/calls/programs.py",
        "            self._run.drive(self._run.take_findings())\n",
        "",
        (f"{OTHERS}::test_what_was_settled_an_instant_ago_counts_for_the_very_next_call",),
    ),
    Mutant(
        "a body in a file that the same text writes, read too early",
        "agents/outward/targets/body.py",
        " or matched.call.moved or not",
        " or not",
        (
            "tests/agents/outward/test_contents.py::test_a_body_in_a_file_is_what_lies_there_unless_the_same_text_may_change_it",
        ),
    ),
    Mutant(
        "what printed too much, made again by whoever retries",
        "supervisor/agent/calls/programs.py",
        "        if held.is_known and held.again is None and self._replays:\n",
        "        if False:\n",
        (
            f"{GUARD}::test_what_printed_too_much_is_not_made_again_by_a_loop_that_retries",
            f"{GUARD}::test_a_comment_in_other_words_is_not_made_by_trying_again",
        ),
    ),
    Mutant(
        "a pipe that nobody looks into",
        "supervisor/client/shim.py",
        "        sent = _input() if fed and _is_content(",
        "        sent = _input() if False and _is_content(",
        (f"{GUARD}::test_what_comes_through_a_pipe_tells_calls_to_one_address_apart",),
    ),
    Mutant(
        "an upload that is kept back until it is whole",
        "supervisor/client/shim.py",
        " or any(map(_STREAMED.match, words[1:])):",
        ":",
        (f"{GUARD}::test_what_is_sent_while_it_comes_is_not_waited_for",),
    ),
    Mutant(
        "a program that was killed, still thought to run",
        "supervisor/agent/calls/programs.py",
        "                self._failures.guarded(partial(self._calls.program_killed, call))\n",
        "                pass\n",
        (
            f"{SHIMS}::test_what_a_program_was_killed_in_is_held_in_the_same_attempt",
            f"{SHIMS}::test_a_call_that_ended_well_with_a_program_of_it_killed_is_in_doubt",
        ),
    ),
    Mutant(
        "a shim's death, on record when its thread gets to it",
        "supervisor/agent/calls/programs.py",
        "            if each is program or not shim.is_there():\n",
        "            if each is program:\n",
        (f"{REPEATED}::test_a_shim_that_died_is_a_doubt_before_its_own_thread_has_heard_of_it",),
    ),
    Mutant(
        "far sides that are asked one after another",
        "supervisor/agent/calls/outward.py",
        "tuple(pool.map(self._with_facts, call.outward[:FACTS_AT_ONCE]))",
        "tuple(map(self._with_facts, call.outward[:FACTS_AT_ONCE]))",
        (f"{ISOLATION}::test_a_call_that_does_several_things_outside_waits_for_all_far_sides_at_once",),
    ),
    Mutant(
        "a shim that is answered when it waits no more",
        "supervisor/agent/calls/programs.py",
        "            if shim.sent_ns and time.monotonic_ns() - shim.sent_ns > self._timing.shim_waits_s * 1e9:\n",
        "            if False:\n",
        (f"{ISOLATION}::test_what_a_shim_asked_too_long_ago_is_refused_and_not_on_record[True]",),
    ),
    Mutant(
        "a shim that does not tell since when it waits",
        "supervisor/client/shim.py",
        '"sent_ns": time.monotonic_ns()',
        '"sent_ns": 0',
        (f"{SHIMS}::test_a_shim_tells_since_when_it_waits",),
    ),
    Mutant(
        "a shim that passes its call off as made when its client was cut off",
        "agents/outward/shims.py",
        "    sys.exit(125)\n",
        "    sys.exit(0)\n",
        (f"{CLIENT_COPY}::test_a_shim_whose_client_was_cut_off_runs_nothing_that_may_reach_outside",),
    ),
    Mutant(
        "a hook that passes its call when its file is gone",
        "supervisor/agent/calls/outward.py",
        "or stop.\" >&2; exit 2'",
        "or stop.\" >&2; exit 1'",
        (f"{CLIENT_COPY}::test_a_hook_without_its_files_denies_in_one_line[copy-bash]",),
    ),
    Mutant(
        "a runner whose package keeps its version",
        "agents/outward/shell/runners.py",
        '    parts = [part for part in _VERSION.sub("", plain).split("/") if part]\n',
        '    parts = [part for part in plain.split("/") if part]\n',
        (f"{OUTWARD}/test_corpus.py::test_every_command_of_the_corpus_has_its_class",),
    ),
    Mutant(
        "a runner whose own options hide its command",
        "agents/outward/shell/runners.py",
        '        while at < len(words) and words[at].startswith("-") and name in BEFORE:\n',
        '        while at < len(words) and words[at].startswith("-") and name in ():\n',
        (f"{OUTWARD}/test_corpus.py::test_every_command_of_the_corpus_has_its_class",),
    ),
    Mutant(
        "a script of a package manager that nobody reads",
        "agents/outward/shell/programs.py",
        "                return [own, *_from_tasks(started.tasks, variables, nesting)]\n",
        "                return [own]\n",
        (
            f"{FOLDER}::test_a_script_of_package_json_is_on_record_before_it_runs_and_held_when_it_was_cut_off",
        ),
    ),
    Mutant(
        "scripts that call each other, read without end",
        "agents/outward/shell/programs.py",
        "        nesting.followed.add(task)\n",
        "",
        (f"{OUTWARD}/test_tasks.py::test_a_named_script_is_what_it_would_run",),
    ),
    Mutant(
        "a shell that leaves the project's programs before the shims",
        "supervisor/agent/calls/shims.py",
        '        _write(self._folder / "sh", ',
        '        _write(self._folder / "no-sh", ',
        (f"{FOLDER}::test_a_program_of_the_project_is_seen_below_a_package_manager",),
    ),
    Mutant(
        "a shim without a program that says it ran",
        "agents/outward/shims.py",
        ">&2; exit 127; }}",
        ">&2; exit 0; }}",
        (f"{FOLDER}::test_a_shim_whose_program_is_not_on_the_path_says_what_a_shell_says",),
    ),
    Mutant(
        "what goes to this machine itself, held",
        "agents/outward/classify.py",
        "(parsed and not known.loopback and _stays_here(found))",
        "(parsed and not known.all and _stays_here(found))",
        (f"{LOOPBACK}::test_a_request_to_this_machine_is_local_unless_the_user_says_otherwise[local]",),
    ),
    Mutant(
        "what goes through a tunnel, passed",
        "agents/outward/classify.py",
        "(parsed and not known.loopback and _stays_here(found))",
        "(parsed and _stays_here(found))",
        (f"{LOOPBACK}::test_a_request_to_this_machine_is_local_unless_the_user_says_otherwise[outward]",),
    ),
    Mutant(
        "hooks and shims that do not know of the tunnel",
        "supervisor/agent/calls/shims.py",
        "    durable.write_durably(copied, b'loopback = \"outward\"\\n' + classes)\n",
        "    durable.write_durably(copied, classes)\n",
        (f"{LOOPBACK}::test_a_request_to_this_machine_is_local_unless_the_user_says_otherwise[outward]",),
    ),
    Mutant(
        "one address of this machine among others, local",
        "agents/outward/classify.py",
        "bool(found.hosts) and all(map(hosts.is_loopback, found.hosts))",
        "any(map(hosts.is_loopback, found.hosts))",
        (
            "tests/agents/outward/test_hosts.py::test_a_publish_counts_where_the_project_may_send_it_elsewhere",
        ),
    ),
    Mutant(
        "a proxy of the environment, not seen by shims",
        "agents/outward/classify.py",
        "*hosts.PROXIES, ",
        "",
        (f"{LOOPBACK}::test_a_proxy_of_the_environment_is_seen_below_the_agent",),
    ),
    Mutant(
        "an option that leads elsewhere, not seen",
        "agents/outward/targets/http.py",
        "request.unseen or request.sends_email or request.elsewhere",
        "request.unseen or request.sends_email",
        ("tests/agents/outward/test_corpus.py::test_every_command_of_the_corpus_has_its_class",),
    ),
)
