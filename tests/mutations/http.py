"""The breaks of the hooks by HTTP, and of what decides whether there are any."""

from tests.mutations.mutant import Mutant

HTTP = "tests/supervisor/test_http_hooks.py"
REAL_HTTP = "tests/agents/test_http_hooks.py"

MUTANTS = (
    Mutant(
        "an agent that node starts and that does not hold its port",
        "supervisor/socket/http_hooks.py",
        "HIGH_FD = 64",
        "HIGH_FD = 3",
        (f"{REAL_HTTP}::test_an_agent_that_node_starts_has_its_port_too",),
    ),
    Mutant(
        "a hook that waits until the local call before it is noted",
        "supervisor/agent/hooks.py",
        "if self._lock.acquire(blocking=False):",
        "if self._lock.acquire():",
        (f"{HTTP}::test_the_next_call_on_a_kept_connection_waits_for_nothing_either",),
    ),
    Mutant(
        "settings of an organisation that are in a folder, not read",
        "agents/claude/provider.py",
        'sorted(MANAGED.with_name(MANAGED_MORE).glob("[!.]*.json"))',
        "list[Path]()",
        (f"{REAL_HTTP}::test_of_managed_settings_all_files_count",),
    ),
    Mutant(
        "what an organisation said last, not read",
        "agents/claude/provider.py",
        "*([self._config / FETCHED] if self._config is not None else [])",
        "",
        (f"{REAL_HTTP}::test_what_an_organisation_said_last_counts_as_managed",),
    ),
    Mutant(
        "a hook by HTTP that nobody answers, no denial",
        "agents/claude/cli.py",
        'denies = {"onFailure": "block"} if',
        'denies = {"onFailure": "allow"} if',
        (f"{REAL_HTTP}::test_only_an_answer_lets_a_call_pass",),
    ),
    Mutant(
        "a new tool before which no hook runs",
        "agents/claude/cli.py",
        "    return f\"^(?!(?:{'|'.join(sorted(tools))})$)\"\n",
        "    return f\"^(?!(?:{'|'.join(sorted(tools))}))\"\n",
        (f"{REAL_HTTP}::test_a_tool_that_nobody_knows_has_a_hook",),
    ),
    Mutant(
        "settings that keep hooks from us, named to nobody",
        "supervisor/agent/observer.py",
        "            self._say_forbidden(end.output)\n",
        "",
        (f"{HTTP}::test_settings_that_keep_its_hooks_from_us_are_named_once",),
    ),
    Mutant(
        "a hook by HTTP for which there was no thread, left hanging",
        "supervisor/socket/http_hooks.py",
        "                self._open.discard(sock)\n            sock.close()\n            raise\n",
        "                pass\n            raise\n",
        (f"{HTTP}::test_a_hook_for_which_there_is_no_thread_is_sent_away_and_takes_nobodys_room",),
    ),
)
