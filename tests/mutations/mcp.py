"""The breaks in `outlast mcp`: what it says of its run, whom it lets settle, and what each revision of the protocol gets."""

from tests.mutations.mutant import Mutant

SERVER, TOOL_CALLS = "mcp/server.py", "supervisor/socket/tool_calls.py"
PROTOCOL, RUNS, SETTLE = "tests/mcp/test_protocol.py", "tests/mcp/test_runs.py", "tests/mcp/test_settle.py"
OFFICIAL, AGENTS = "tests/mcp/test_official_client.py", "tests/agents/test_own_mcp.py"

MUTANTS = (
    Mutant(
        "mcp: an agent that settles what a person decides",
        TOOL_CALLS, '        if _settles(found) != "you":\n', "        if False:\n",
        (f"{SETTLE}::test_what_a_person_decides_an_agent_cannot",),
    ),
    Mutant(
        "mcp: a call that may repeat another one, settled by its agent",
        TOOL_CALLS, 'return "person" if given.get("asks") else "you"', 'return "you"',
        (f"{SETTLE}::test_what_a_person_decides_an_agent_cannot",),
    ),
    Mutant(
        "mcp: a did-not while a process of the call lives",
        TOOL_CALLS, '            if wanted.finding == "did_not"\n', "            if False\n",
        (f"{SETTLE}::test_nothing_did_not_happen_while_a_process_of_it_may_do_it_yet",),
    ),
    Mutant(
        "mcp: a person's word that comes after the agent's",
        TOOL_CALLS, "            self._run.drive(self._run.take_findings())  # a person who was first has the say\n", "",
        (f"{SETTLE}::test_a_person_who_was_first_has_the_say",),
    ),
    Mutant(
        "mcp: a finding that is answered before it is on record",
        TOOL_CALLS, "            self._run.drive(self._run.take_findings())\n        effect", "        effect",
        (f"{SETTLE}::test_what_an_agent_looked_up_of_its_own_call_is_on_record_when_it_is_answered",),
    ),
    Mutant(
        "mcp: an attempt that is stopped and takes more",
        TOOL_CALLS, "        if is_stopping:\n", "        if False:\n",
        (f"{SETTLE}::test_while_the_attempt_is_stopped_it_looks_and_writes_nothing",),
    ),
    Mutant(
        "mcp: a frozen run that is waited for",
        "mcp/run.py", "answer = there.receive(limit_s=limit_s)", "answer = there.receive(limit_s=3600.0)",
        (f"{RUNS}::test_a_frozen_run_is_a_tool_error_within_the_limit",),
    ),
    Mutant(
        "mcp: a cancelled call that is waited for",
        SERVER, "                call.cut()\n", "                pass\n",
        (f"{RUNS}::test_a_cancelled_call_is_not_answered_and_keeps_nobody_waiting",),
    ),
    Mutant(
        "mcp: a cancelled call that is answered",
        SERVER, "waiting.give(response if is_wanted else None)", "waiting.give(response)",
        (f"{RUNS}::test_a_cancelled_call_is_not_answered_and_keeps_nobody_waiting",),
    ),
    Mutant(
        "mcp: two requests under one id",
        SERVER, "            if bytes(request) in self._open:\n", "            if False:\n",
        (f"{RUNS}::test_a_second_request_under_an_id_that_is_under_way_is_refused",),
    ),
    Mutant(
        "mcp: a batch in a revision that has none",
        SERVER, "if self._shaken is None or not self._shaken.takes_batches:", "if False:",
        (f"{PROTOCOL}::test_only_the_one_revision_that_has_batches_answers_them",),
    ),
    Mutant(
        "mcp: a request without a revision that is served",
        "mcp/revisions.py", "        if shaken is None:\n", "        if False:\n",
        (f"{PROTOCOL}::test_a_request_without_a_revision_is_refused_and_with_an_unknown_one_told_which_there_are",),
    ),
    Mutant(
        "mcp: a line that is kept however long it is",
        "mcp/stdio.py", "LINE_MAX_BYTES = 4 << 20", "LINE_MAX_BYTES = 4 << 30",
        (f"{PROTOCOL}::test_garbage_is_answered_with_an_error_and_the_next_request_as_ever",),
    ),
    Mutant(
        "mcp: calls under way that the end of the input cuts off",
        SERVER, "            lane.join(max(0.0, until_s - time.monotonic()))\n", "            pass\n",
        (f"{RUNS}::test_what_was_asked_before_the_end_of_the_input_is_answered",),
    ),
    Mutant(
        "mcp: a stray print that a client reads",
        "mcp/stdio.py", "        os.dup2(2, fd)\n", "",
        (f"{PROTOCOL}::test_what_is_printed_beside_the_protocol_does_not_reach_the_client",),
    ),
    Mutant(
        "mcp: our tools held as outward calls",
        "agents/outward/classes.toml", "]\nlocal = true\n# end of the classes", "]\n# end of the classes",
        (f"{AGENTS}::test_a_call_of_ours_stays_inside_and_one_of_a_server_with_a_like_name_does_not",),
    ),
    Mutant(
        "mcp: hooks that are not asked about another's server, where ours is not given",
        "agents/claude/cli.py", "| (frozenset(OWN_TOOLS) if ask.mcp is not None else frozenset())", "| frozenset(OWN_TOOLS)",
        (f"{AGENTS}::test_without_our_server_an_agent_is_started_as_ever",),
    ),
    Mutant(
        "mcp: a user's own servers that are left out",
        "agents/gemini/cli.py", '{**json_lines.inner(settings, "mcpServers"), own_server.NAME: ours}', "{own_server.NAME: ours}",
        (f"{AGENTS}::test_a_home_of_the_runs_own_has_our_server_besides_theirs_and_their_file_stays",),
    ),
)  # fmt: skip
