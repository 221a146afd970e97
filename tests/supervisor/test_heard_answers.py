"""An answer counts when its caller has got it. One whose client is killed before that, or before it has ended, is given again
when the same call comes again, and the call is not made a second time: shims, hooks, `outlast effect` and `outlast step`.

strace kills the client at an exact system call; the witness counts what reached the world.
"""

import json
import shlex
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest

from outlast.agents.events import Response, ToolEnd
from outlast.agents.outward import content
from outlast.core import events as ev
from outlast.supervisor.agent.calls.answers import CallAnswers
from outlast.supervisor.agent.calls.record import EndedProgram, OutwardCall
from outlast.supervisor.agent.calls.repeats import Holds
from outlast.supervisor.client import copy
from outlast.supervisor.socket import connection
from outlast.supervisor.socket.connection import Connection
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.wire import Output, Shim, ShimAnswer
from tests.supervisor.guarded_loop import GuardedLoop
from tests.supervisor.hook_driver import AttemptDies, before
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted, held
from tests.supervisor.test_shims import SURE, below
from tests.support import commands, strace
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

pytestmark = pytest.mark.skipif(strace.available() is not None, reason=str(strace.available()))


def killed(call: str, nth: int) -> str:
    """Words before a command: it is killed at the n-th of its own calls of this name, which it does not do."""
    return f"strace -o /dev/null -e trace={call} -e inject={call}:signal=SIGKILL:when={nth}"


# Each message of a client is one `sendto`; its last one says that it has taken the answer.
LAST_WORD, EXIT = 0, 1
SHIM = [killed("sendto", 3), killed("exit_group", 1)]  # asked, reported, took it
REPLAYING_SHIM = [killed("sendto", 2), killed("exit_group", 1)]  # asked, took it
INSTANTS = pytest.mark.parametrize("instant", [LAST_WORD, EXIT], ids=["before its last word", "after it"])


# -- shims -----------------------------------------------------------------------------------------------------------


@INSTANTS
def test_a_guarded_call_whose_shim_is_killed_after_its_program_is_not_made_again(
    host: Host, instant: int
) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "a")
    loop.script.write_text(f"said=$({SHIM[instant]} {post} || {post}); echo said $said\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("a"), loop.said
    assert "its caller did not hear of that" in loop.said
    assert loop.said.count('"n": 1') == 2, "what it printed, and that once more"


@INSTANTS
def test_a_loop_that_tries_until_its_call_succeeds_makes_it_once(host: Host, instant: int) -> None:
    """Below an agent too the program ends as it did: a script reads no words."""
    agent = Scripted(host)
    post = agent.posting("a")
    first = f"[ -e tried ] && before= || before='{SHIM[instant]}'; touch tried"
    agent.says(f"for n in 1 2 3 4; do {first}; $before {post} && break; done")
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == ["a"]


@INSTANTS
@pytest.mark.parametrize("is_one_call", [True, False])
def test_below_an_agent_it_is_not_made_again_in_the_same_call_nor_in_the_next(
    host: Host, instant: int, is_one_call: bool
) -> None:
    agent = Scripted(host)
    post = agent.posting("a")
    again = f"{SHIM[instant]} {post}"
    agent.says(*([f"{again} || {post}"] if is_one_call else [again, post, post]))
    assert agent.run() == 0, host.said("t")
    # Its agent was told, and makes a further one.
    assert agent.performed() == ["a"] if is_one_call else ["a", "a"]


def test_another_call_is_made_after_one_that_nobody_heard_of(host: Host) -> None:
    loop = GuardedLoop(host)
    first, other = loop.post.replace("$item", "a"), loop.post.replace("$item", "b")
    loop.script.write_text(f"{SHIM[LAST_WORD]} {first} || {other}\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("ab"), loop.said


def test_the_same_call_is_made_twice_where_its_caller_heard_of_the_first(host: Host) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "a")
    loop.script.write_text(f"{post}; {post}\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("aa"), loop.said


@INSTANTS
def test_a_call_of_an_earlier_attempt_is_answered_again_where_its_shim_is_killed(
    host: Host, instant: int
) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "a")
    loop.script.write_text(
        f"[ -e ../second ] && before='{REPLAYING_SHIM[instant]}' || before=\n"
        f"$before {post} || {post}\n"
        "[ -e ../second ] || { touch ../second; kill -9 $$; }\n"
    )
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("a"), loop.said
    assert loop.said.count("happened before") == 2, loop.said


def test_what_a_killed_session_was_told_of_a_killed_shim_it_is_told_again(host: Host) -> None:
    """Its transcript says 137; that the program had ended well is on record."""
    agent = Scripted(host)
    post = agent.posting("a")
    agent.says(f"{SHIM[LAST_WORD]} {post}; exit $?", held("mark"), post)
    agent.killed_at("mark")
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == ["a"], agent.effects()


# -- hooks -----------------------------------------------------------------------------------------------------------


def client_killed(agent: Scripted, before: str) -> None:
    """The next hook before a call runs its client behind these words."""
    text = agent.program.read_text()
    command = '["sh", "-c", each["command"]]'
    assert command in text
    python = agent.folder / "python"
    real = json.dumps(agent.folder.as_posix())
    python.write_text(f'#!/bin/sh\nrm -f {agent.folder}/arm\nexec {before} {copy.interpreter()} "$@"\n')
    python.chmod(0o755)
    replaced = (
        f'["sh", "-c", each["command"].replace({copy.interpreter()!r}, {str(python)!r}) '
        f'if event == "PreToolUse" and (Path({real}) / "arm").exists() else each["command"]]'
    )
    agent.program.write_text(text.replace(command, replaced))
    (agent.folder / "arm").touch()


@pytest.mark.parametrize(
    "before", [killed("write", 1), killed("sendto", 2), killed("exit_group", 1)],
    ids=["before it prints", "before its last word", "after it"],
)  # fmt: skip
def test_a_fresh_session_whose_hook_is_killed_with_the_answer_is_answered_again(
    host: Host, before: str
) -> None:
    agent = Scripted(host)
    agent.says(agent.posting("a"), held("mark"))
    agent.killed_at("mark")
    agent.forget_sessions()
    client_killed(agent, before)
    agent.says(agent.posting("a"), agent.posting("a"), "echo end")
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == ["a"], agent.effects()
    told = results(agent)
    assert "its hook ended with 137. This call was not made now" in told[0]
    assert "Nothing was done" not in told[0]
    assert "happened before" in told[1]


def test_a_call_that_was_allowed_to_a_hook_that_is_killed_is_not_made_and_not_in_doubt(host: Host) -> None:
    agent = Scripted(host)
    client_killed(agent, killed("sendto", 2))
    agent.says(agent.posting("a"), agent.posting("a"))
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == ["a"], agent.effects()
    assert [effect["state"] for effect in agent.effects()] == ["failed", "confirmed"]


def results(agent: Scripted) -> list[str]:
    """What its model was told of its calls."""
    (path,) = agent.host.isolated.home.glob(".claude/projects/*/*.jsonl")
    contents = [json.loads(line)["message"]["content"] for line in path.read_text().splitlines()]
    return [
        each["content"]
        for content in contents
        if isinstance(content, list)
        for each in content
        if "content" in each
    ]


# -- steps and effects of scripts --------------------------------------------------------------------------------------

ACT = """
import sys
from outlast.chaos.witness.client import Client
url, name = sys.argv[1:]
Client(url).act("probed", name, {"for": name}, marker=name)
print("did", name)
"""


class ActingScript:
    """A script under `outlast run` whose first call of `outlast` is killed at an instant; `do NAME` acts on the world."""

    def __init__(self, host: Host, before: str) -> None:
        self.host, self.folder = host, host.folder / "bin"
        self.folder.mkdir()
        (self.folder / "act.py").write_text(ACT)
        self._program("do", f'exec {sys.executable} -P {self.folder}/act.py {host.witness.url} "$@"')
        real = shlex.join(commands.ARGV)
        once = f'if mkdir {self.folder}/tried 2> /dev/null; then exec {before} {real} "$@"; fi'
        self._program("outlast", f'case $1 in step | effect) {once};; esac\nexec {real} "$@"')

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, text: str, *, alone: bool = False) -> str:
        """To its end: what it printed."""
        work = self.host.repository("t")
        path = work / "s.sh"
        path.write_text(('eval "$(outlast shell-init)"\n' if alone else "") + text)
        argv = ["bash", "s.sh"] if alone else [*commands.ARGV, "run", "--task", "t", "--", "bash", "s.sh"]
        variables = self.host.environ(OUTLAST_TASK="t")
        variables["PATH"] = f"{self.folder}:{variables['PATH']}"
        done = commands.run(argv, cwd=work, env=variables, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def done(self) -> Counter[str]:
        return Counter(act.marker for act in self.host.witness.performances())


CLIENT = [killed("sendto", 3), killed("exit_group", 1)]  # called, reported, took it


@INSTANTS
@pytest.mark.parametrize("alone", [False, True], ids=["outlast run", "shell-init"])
def test_an_effect_whose_caller_never_heard_of_it_is_the_next_call_of_its_name(
    host: Host, instant: int, alone: bool
) -> None:
    script = ActingScript(host, CLIENT[instant])
    printed = script.run("until outlast effect post -- do a; do :; done\n", alone=alone)
    assert script.done() == Counter("a")
    assert printed.count("did a") == 2, "what it printed, and that once more"


@INSTANTS
def test_a_step_whose_caller_never_heard_of_it_is_the_next_call_of_its_name(host: Host, instant: int) -> None:
    script = ActingScript(host, CLIENT[instant])
    script.run("until outlast step post -- do a; do :; done\noutlast step post -- do a\n")
    assert script.done() == Counter(a=2), "the second call is another step"


def test_another_command_under_the_same_name_is_run_all_the_same(host: Host) -> None:
    script = ActingScript(host, CLIENT[LAST_WORD])
    script.run("outlast step post -- do a || outlast step post -- do b\n")
    assert script.done() == Counter("ab")


# -- the last word ---------------------------------------------------------------------------------------------------


def traced(file: Path) -> str:
    """Words before a command: what it says to whom, and its end, is written down."""
    return f"strace -o {file} -e trace=write,sendto,recvfrom,exit_group"


@pytest.mark.parametrize("client", ["shim", "hook", "effect"])
def test_the_last_word_of_a_client_is_its_last_act(host: Host, tmp_path: Path, client: str) -> None:
    """Not every kernel tells how a process ended: then the word alone counts."""
    file = tmp_path / "trace"
    if client == "effect":
        ActingScript(host, traced(file)).run("outlast effect post -- do a\n")
    else:
        agent = Scripted(host)
        agent.says(agent.posting("a") if client == "hook" else f"{traced(file)} {agent.posting('a')}")
        if client == "hook":
            client_killed(agent, traced(file))
        assert agent.run() == 0, host.said("t")
    acts = [line for line in file.read_text().splitlines() if not line.startswith(("---", "+++"))]
    assert [line.partition("(")[0] for line in acts[-3:]] == ["recvfrom", "sendto", "exit_group"], acts
    assert r'"\6", 1' in acts[-2]
    assert sum(r'"\6", 1' in act for act in acts) == 1, acts


def test_a_call_is_judged_by_what_was_heard_until_then(tmp_path: Path) -> None:
    """Also where the thread that serves its first caller has not looked yet."""
    ran = []

    def perform() -> Output:
        ran.append("curl")
        return Output(0)

    with below(tmp_path) as here:
        asked = Shim(words=tuple(SURE.split()), cwd=str(here.there.work))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            hooks = here.there.attempt.hooks
            assert hooks.shim(asked, perform, Delivery(Connection(ours), acknowledges=True)) == ShimAnswer()
            theirs.close()
            assert "its caller did not hear of that" in hooks.shim(asked, perform).reason
            assert ran == ["curl"]
            assert hooks.shim(asked, perform) == ShimAnswer(), "it was said once: this is another one"
        raise AttemptDies


def test_what_only_the_transcript_tells_of_a_call_is_recorded_with_who_heard_of_it(tmp_path: Path) -> None:
    """It may be read before any hook comes, and before the thread that serves the shim has looked."""
    with below(tmp_path) as here:
        there = here.there
        there.take(Response("msg_1"))
        assert there.allows(before("claude", SURE))
        asked = Shim(words=tuple(SURE.split()), cwd=str(there.work))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            delivery = Delivery(Connection(ours), acknowledges=True)
            assert there.attempt.hooks.shim(asked, lambda: Output(0), delivery) == ShimAnswer()
            theirs.close()
            there.take(ToolEnd("call_1", False, "Killed", code=137))
            there.take(Response("msg_2"))
        [ended] = there.run.journal.events("effect_confirmed")
        assert isinstance(ended, ev.EffectConfirmed)
        assert b'"unheard":true' in bytes(ended.result.v)
        raise AttemptDies


def test_a_program_that_does_more_than_the_one_nobody_heard_of_does_not_end_as_that_did(
    tmp_path: Path,
) -> None:
    first, more = (
        OutwardCall("push", f"push origin {name}", content=content.of(words=b"c")) for name in "ab"
    )
    with below(tmp_path) as here:
        answers = CallAnswers(Holds(here.there.run.journal, "settle"), here.there.attempt.calls)
        ours, theirs = connected(tmp_path)
        theirs.close()
        ended = EndedProgram("1.1", "call_1", "git", (first,), Output(0, b"pushed"))
        answers.ended(Delivery(ours, acknowledges=True), ended)
        answers.look()
        ours.close()
        same, longer = answers.owed((first,), "git"), answers.owed((first, more), "git")
        assert same is not None
        assert same.again == b"pushed"
        assert longer is not None
        assert longer.again is None, "it is told of the first one, and not that all was done"
        assert answers.owed((first,), "npm") is None, "another program does more than that"
        assert answers.owed((more,), "git") is None
        raise AttemptDies


# -- how it is known ---------------------------------------------------------------------------------------------------


def connected(folder: Path) -> tuple[Connection, Connection]:
    """Both sides of a connection: ours, and that of whoever asks, which is this process too."""
    listening = connection.listen(folder / "socket")
    asking = connection.connect(str(folder / "socket"), TIMEOUT_S)
    with listening:
        return Connection(listening.accept()[0]), asking


def test_an_answer_is_under_way_until_its_side_says_that_it_has_it(tmp_path: Path) -> None:
    ours, asking = connected(tmp_path)
    delivery = Delivery(ours, acknowledges=True)
    assert delivery.look() == "under_way"
    asking.acknowledge()
    asking.close()
    wait_for(lambda: delivery.look() == "taken", what="the last word")
    ours.close()
    assert delivery.look() == "taken"


def test_an_answer_whose_side_leaves_without_a_word_is_lost(tmp_path: Path) -> None:
    ours, asking = connected(tmp_path)
    delivery = Delivery(ours, acknowledges=True)
    asking.close()
    assert delivery.look() == "lost"
    ours.close()


def test_a_side_that_never_says_so_counts_as_having_it(tmp_path: Path) -> None:
    """Those of an earlier outlast do not."""
    ours, asking = connected(tmp_path)
    delivery = Delivery(ours)
    asking.close()
    assert delivery.look() == "taken"
    ours.close()
