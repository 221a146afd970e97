"""Programs below an agent that reach outside, through real shims and the socket: seen, told truly, and not done twice.

The real program is a stand-in that notes each time that it is run: the witness.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast import settings as ours
from outlast.agents.events import ToolEnd
from outlast.errors import UsageError
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.agent.calls.record import call_record_of
from outlast.supervisor.agent.calls.shims import SHIMS
from outlast.supervisor.client import shim
from outlast.supervisor.launch import environment
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import (
    LOCAL,
    MARK,
    POST,
    SIGNATURE,
    AttemptDies,
    Minded,
    after,
    before,
    client,
    minded,
    write_session,
)
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support.environment import TIMEOUT_S, Isolated, isolate
from tests.support.processes import wait_for

SCRIPT = "./post.sh"
SURE, UNSURE = "curl -fsS -d hello http://127.0.0.1:9/comment", "curl -sS -d hello http://127.0.0.1:9/comment"
HELD = "outlast holds this call"
STAND_IN = """#!/bin/sh
[ ! -e {programs}/hold ] || {{ rm {programs}/hold; echo {name} "$@" >> {programs}/witness; read _ < {programs}/gate; exit 0; }}
echo {name} "$@" >> {programs}/witness
"""


@dataclass
class Below:
    """What runs below the agent of one attempt."""

    there: Minded
    variables: dict[str, str]
    programs: Path

    def run(self, text: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-c", text], cwd=self.there.work, env=self.variables | more, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self, text: str) -> Iterator[None]:
        """The same while its program is at work, which is killed at the end with the shim, unless it was let go."""
        (self.programs / "hold").touch()
        before = len(self.done)
        os.mkfifo(self.programs / "gate")
        process = subprocess.Popen(
            ["sh", "-c", text], cwd=self.there.work, env=self.variables, stdin=subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip
        try:
            wait_for(lambda: len(self.done) > before, what="the program")
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(TIMEOUT_S)
            self.heard()
            (self.programs / "gate").unlink()

    def let_go(self) -> None:
        """The program that runs ends well."""
        (self.programs / "gate").write_text("\n")
        self.heard()

    def heard(self) -> None:
        """Whatever ended, our side knows."""
        wait_for(lambda: not self.there.server.busy, what="the end of the connection")

    def states(self) -> list[tuple[str, str]]:
        """What is open of what reaches outside."""
        return [
            (effect.name, effect.state)
            for effect in self.there.run.state.effects_open
            if effect.policy == "tell"
        ]

    @property
    def done(self) -> list[str]:
        """What the stand-ins were run with."""
        witness = self.programs / "witness"
        return witness.read_text().splitlines() if witness.exists() else []

    def told(self) -> str:
        """What the agent is told when it goes on."""
        return json.dumps(
            [*self.there.attempt.command(("claude", "-p", "x"), dict(self.variables), MARK).command]
        )


@contextlib.contextmanager
def below(
    folder: Path,
    agent: str = "claude",
    timing: Timing | None = None,
    approve: tuple[str, ...] = (),
    **more: str,
) -> Iterator[Below]:
    """One attempt of the same run each time."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("curl", "http", "git", "ssh"):
        path = programs / name
        if not path.exists():
            path.write_text(STAND_IN.format(name=name, programs=programs))
            path.chmod(0o755)
    with minded(folder, agent, timing=timing, approve=approve) as there:
        variables = {
            environment.SOCKET: str(there.server.path), environment.ATTEMPT: MARK, "HOME": str(there.home),
            "PATH": f"{programs}:/usr/bin:/bin", **more,
        }  # fmt: skip
        there.attempt.command((agent, "-p", "x"), variables, MARK)
        yield Below(there, variables, programs)


# --- what a script below a call does, when the call is cut off --------------------------------------------------------


def test_what_a_script_did_before_its_call_was_cut_off_is_told_and_not_done_again(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT))
        assert here.run(SURE).returncode == 0
        raise AttemptDies
    with below(tmp_path) as here:
        words = here.told()
        assert "Below it a program reached outside: POST 127.0.0.1:9/comment" in words
        assert "it happened, do not repeat it" in words
        assert here.there.allows(before("claude", SCRIPT, "call_2")), "the script itself is no call outside"
        again = here.run(SURE)
        assert again.returncode == shim.REFUSED
        assert "happened before" in again.stderr
        assert len(here.done) == 1
        assert here.run(SURE).returncode == 0, "it is said once: this is another one"
        assert len(here.done) == 2
        raise AttemptDies


def test_whether_a_server_accepted_is_not_known_by_the_exit_code_of_curl(tmp_path: Path) -> None:
    """It ends with 0 after a refusal, too, unless it is told not to."""
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT))
        assert here.run(UNSURE).returncode == 0
        raise AttemptDies
    with below(tmp_path) as here:
        words = here.told()
        assert "it is not known whether it happened" in words
        assert "it happened, do not" not in words
        for _ in range(2):
            assert HELD in here.run(UNSURE).stderr
        here.there.settle("did_not")
        assert here.run(UNSURE).returncode == 0
        assert len(here.done) == 2
        raise AttemptDies


@pytest.mark.parametrize(("command", "sure"), [(SURE, True), (UNSURE, False)])
def test_the_same_of_a_call_that_its_hook_told_of(tmp_path: Path, command: str, sure: bool) -> None:
    text = f"{command}; sleep 300"
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", text))
        assert here.run(command).returncode == 0
        assert here.there.intended() == [("POST 127.0.0.1:9/comment", "tell")], "one call, seen twice"
        raise AttemptDies
    with below(tmp_path) as here:
        words = here.told()
        assert ("it did happen" in words) == sure
        assert ("it is not known whether it happened" in words) != sure
        _, out = here.there.ask(before("claude", command, "call_2"))
        assert (b"happened before" in out) == sure
        assert (HELD.encode() in out) != sure
        raise AttemptDies


@pytest.mark.parametrize("command", [SURE, UNSURE])
def test_what_the_agent_was_told_the_end_of_is_no_reason_to_hold_the_next_one(
    tmp_path: Path, command: str
) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT))
        for _ in range(2):
            assert here.run(command).returncode == 0, "a loop in one call is no repetition"
        here.there.ask(after("claude", SCRIPT))
        assert here.there.run.state.effects_open == ()
        write_session(here.there)
        raise AttemptDies
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT, "call_2"))
        assert here.run(command).returncode == 0
        assert len(here.done) == 3
        raise AttemptDies


def test_the_end_of_one_call_says_nothing_of_what_another_one_beside_it_does(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT))
        assert here.there.allows(before("claude", LOCAL, "call_2"))
        assert here.run(SURE).returncode == 0
        here.there.ask(after("claude", LOCAL, "call_2"))
        raise AttemptDies
    with below(tmp_path) as here:
        assert here.run(SURE).returncode == shim.REFUSED
        assert len(here.done) == 1
        raise AttemptDies


def test_a_call_that_failed_with_what_is_below_it_is_over_when_the_agent_goes_on(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        (here.programs / "curl").write_text("#!/bin/sh\nexit 22\n")
        assert here.there.allows(before("claude", f"git push origin main; {SCRIPT}"))
        assert here.run(SURE).returncode == 22
        here.there.attempt.calls.outcome(ToolEnd("call_1", False, "exit code 22"))
        assert len(here.there.run.state.effects_open) == 2, "it may be its dying word"
        assert here.there.allows(before("claude", LOCAL, "call_2"))
        assert here.there.attempt.failure is None
        assert [effect.policy for effect in here.there.run.state.effects_open] == ["give_up"]
        raise AttemptDies


@pytest.mark.parametrize("command", [SURE, UNSURE])
def test_of_an_agent_that_only_shims_see_what_it_did_is_answered_once(tmp_path: Path, command: str) -> None:
    with below(tmp_path, "mini-swe-agent") as here:
        for _ in range(2):
            assert here.run(command).returncode == 0
        raise AttemptDies
    with below(tmp_path, "mini-swe-agent") as here:
        again = here.run(command)
        assert again.returncode == shim.REFUSED
        assert ("does not say that the server accepted it" in again.stderr) == (command == UNSURE)
        assert ("happened before" in again.stderr) == (command == SURE)
        assert len(here.done) == 2
        raise AttemptDies
    with below(tmp_path, "mini-swe-agent") as here:
        for _ in range(2):
            assert here.run(command).returncode == shim.REFUSED, (
                "it was said, to an agent that knows no more of it"
            )
        assert here.run(command).returncode == 0, "each is answered once"
        assert len(here.done) == 3
        raise AttemptDies


def test_in_its_own_session_what_only_a_shim_saw_is_answered_once(tmp_path: Path) -> None:
    """No hook told of the call around it, so nobody knows whether the agent was told its end."""
    with below(tmp_path) as here:
        assert here.run(SURE).returncode == 0
        write_session(here.there)
        raise AttemptDies
    with below(tmp_path) as here:
        again = here.run(SURE)
        assert again.returncode == shim.REFUSED
        assert "happened before" in again.stderr
        assert here.run(SURE).returncode == 0
        raise AttemptDies


# --- programs that are killed, or run on ------------------------------------------------------------------------------


def test_what_a_program_was_killed_in_is_held_in_the_same_attempt(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SCRIPT))
        with here.running(SURE):
            assert here.states() == [(SIGNATURE, "intended")]
        assert here.states() == [(SIGNATURE, "in_doubt")]
        again = here.run(UNSURE)
        assert again.returncode == shim.REFUSED
        assert HELD in again.stderr
        assert not here.there.allows(before("claude", POST, "call_2"))
        assert len(here.done) == 1
        raise AttemptDies


def test_a_call_that_ended_well_with_a_program_of_it_killed_is_in_doubt(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", f"{SURE} || true"))
        with here.running(SURE):
            pass
        assert here.there.ask(after("claude", f"{SURE} || true"))[0] == 0
        assert here.there.attempt.failure is None
        assert here.states() == [(SIGNATURE, "in_doubt")]
        _, out = here.there.ask(before("claude", SURE, "call_2"))
        assert HELD.encode() in out
        raise AttemptDies


def test_of_two_calls_alike_nobody_knows_whose_program_it_is(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        for call in ("call_1", "call_2"):
            assert here.there.allows(before("claude", SURE, call))
        assert here.run(SURE).returncode == 0
        assert len(here.done) == 1
        assert here.states() == [(SIGNATURE, "intended")] * 2, (
            "one program is no proof of two calls, nor of one of them"
        )
        assert here.there.intents()[2].key.startswith("shim-")
        raise AttemptDies
    with below(tmp_path) as here:
        assert here.states() == [(SIGNATURE, "in_doubt")] * 2
        raise AttemptDies


@pytest.mark.parametrize("ends", ["well", "killed"])
def test_a_call_that_left_its_program_running_has_no_outcome_before_that_ends(
    tmp_path: Path, ends: str
) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", f"{SURE} &"))
        with here.running(SURE):
            assert here.there.ask(after("claude", f"{SURE} &"))[0] == 0
            assert here.states() == [(SIGNATURE, "intended")]
            if ends == "well":
                here.let_go()
        assert here.states() == ([] if ends == "well" else [(SIGNATURE, "in_doubt")])
        _, out = here.there.ask(before("claude", SURE, "call_2"))
        assert (HELD.encode() in out) == (ends == "killed")
        raise AttemptDies


# --- what a shim tells ------------------------------------------------------------------------------------------------


def test_a_shim_tells_since_when_it_waits(tmp_path: Path) -> None:
    with below(tmp_path, timing=Timing(shim_waits_s=-1.0)) as here:
        asked = here.run(SURE)
        assert asked.returncode == shim.REFUSED
        assert "no longer waits for the answer" in asked.stderr
        assert here.there.intended() == []
        assert here.done == []
        raise AttemptDies


def test_a_shim_tells_the_variables_that_name_the_target(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        for name in ("a", "b"):
            (here.there.work / name / ".git/objects").mkdir(parents=True)
            (here.there.work / name / ".git/HEAD").write_text("ref: refs/heads/main\n")
        assert (
            here.run("cd a && export GIT_DIR=../b/.git && git push origin main", SECRET="s3cret").returncode
            == 0
        )
        [intent] = here.there.intents()
        told = call_record_of(here.there.run.journal, intent)
        assert told is not None
        assert told.outward[0].probe["params"]["git_dir"] == "../b/.git"
        assert b"s3cret" not in json.dumps(told.outward[0].probe).encode()
        raise AttemptDies


def test_a_shim_tells_whether_something_is_fed_to_the_program(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.run("echo '{}' | http host.test/x; http --ignore-stdin host.test/y").returncode == 0
        assert here.there.intended() == [("POST host.test/x", "tell")]
        assert len(here.done) == 2
        raise AttemptDies


@pytest.mark.parametrize("reset", ["PATH=/usr/bin:/bin bash -c", "PATH=/usr/bin:/bin bash -lc"])
def test_a_shell_with_a_path_of_its_own_has_the_shims_in_front_again(tmp_path: Path, reset: str) -> None:
    """Codex runs `bash -lc`, and /etc/profile sets a PATH."""
    (tmp_path / "their bash env").write_text("THEIRS=sourced\n")
    with below(tmp_path, BASH_ENV=str(tmp_path / "their bash env")) as here:
        text = f"{reset} 'echo $THEIRS; command -v curl; curl -d x http://host.test/x'"
        said = here.run(text).stdout.splitlines()
        assert said[:2] == ["sourced", str(here.there.attempt._agent.folder / SHIMS / "curl")]
        assert here.there.intended() == [("POST host.test/x", "tell")]
        raise AttemptDies


REFUSAL = "outlast: `curl` was not run: it is not on record: no supervisor listens"


@pytest.mark.parametrize(
    ("text", "output", "is_refused"),
    [
        (SURE, REFUSAL, True),
        (SURE, f"Exit code 125\n{REFUSAL}\n", True),
        (f"{SURE}; {SURE}x", f"{REFUSAL}\n{REFUSAL}", True),
        (f"{SURE}; {SURE}x", REFUSAL, False),
        (f"git commit -m x && {SURE}", f"[main 1a2b3c4] x\n 1 file changed\n{REFUSAL}", True),
        (f"{SURE}; false", f"Exit code 1\n{REFUSAL}", True),
        (SURE, f"{REFUSAL}\n{REFUSAL}", False),
        (SURE, f"and more: {REFUSAL}", False),
        (SURE, REFUSAL.replace("curl", "git"), False),
        (f"/usr/bin/{SURE}", REFUSAL, False),
        (f"PATH=/bin {SURE}", REFUSAL, False),
        (f"sudo {SURE}", REFUSAL, False),
        (f"echo '{REFUSAL}'; {SURE}", REFUSAL, False),
    ],
)
def test_only_a_shims_refusal_of_each_of_its_programs_says_that_a_call_was_not_made(
    tmp_path: Path, text: str, output: str, is_refused: bool
) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", text))
        here.there.take(ToolEnd("call_1", False, output))
        assert _states(here) == ["failed" if is_refused else "intended"]
        raise AttemptDies


def test_a_call_whose_program_ran_cannot_say_that_its_shim_refused_it(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", SURE))
        assert here.run(SURE).returncode == 0
        here.there.take(ToolEnd("call_1", False, REFUSAL))
        assert _states(here) == ["confirmed"]
        raise AttemptDies


def test_a_refused_program_is_not_done_though_its_call_ended_well(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", f"{SURE}; true"))
        here.there.take(ToolEnd("call_1", True, REFUSAL))
        assert _states(here) == ["failed"]
        raise AttemptDies


def test_of_a_call_with_two_programs_what_ran_is_confirmed_and_what_was_refused_is_not(
    tmp_path: Path,
) -> None:
    with below(tmp_path) as here:
        assert here.there.allows(before("claude", f"{SURE} && git push origin main"))
        assert here.run(SURE).returncode == 0
        end = ToolEnd("call_1", False, "Exit code 125\n" + REFUSAL.replace("curl", "git"))
        for _ in ("the hook tells it", "the transcript tells it again"):
            here.there.take(end)
        assert here.there.allows(before("claude", LOCAL, "call_2")), "it goes on"
        ran, refused, _ = here.there.run.journal.record.effects.values()
        assert (ran.state, refused.state) == ("confirmed", "failed")
        assert SIGNATURE in ran.intent.name
        assert refused.intent.name == "push origin refs/heads/main"
        assert here.there.run.journal.value(ran.result)["not_done"] == [refused.intent.name]
        assert here.there.allows(before("claude", "git push origin main", "call_3")), "it may be made now"
        raise AttemptDies


def _states(here: Below) -> list[str]:
    return [effect.state for effect in here.there.run.journal.record.effects.values()]


def test_a_call_that_its_shim_refused_is_on_record_as_not_done(host: Host) -> None:
    agent = Scripted(host)
    agent.says(f"rm -rf {host.root}/runs/*/client; {agent.posting('one')}")
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == []
    [effect] = agent.effects()
    assert effect["state"] == "failed", effect
    context = host("context", "t", cwd=agent.work).out
    assert "Effects done" not in context, context


def test_a_commit_before_a_refused_program_does_not_make_it_count_as_done(host: Host) -> None:
    agent = Scripted(host)
    commit = "git -c user.name=a -c user.email=a@b commit --allow-empty -m one"
    agent.says(f"rm -rf {host.root}/runs/*/client; {commit} && {agent.posting('one')}")
    assert agent.run() == 0, host.said("t")
    assert agent.performed() == []
    [effect] = agent.effects()
    assert effect["state"] == "failed", effect


def test_a_state_folder_with_a_newline_in_its_path_is_no_hindrance(tmp_path: Path) -> None:
    place = tmp_path / "state\nfolder"
    place.mkdir()
    with Host(tmp_path, dataclasses.replace(isolate(tmp_path), state_home=place)) as host:
        agent = Scripted(host)
        (agent.work / "post.sh").write_text(agent.posting("below"))
        agent.says(agent.posting("one"), "bash ./post.sh")
        assert agent.run() == 0, host.said("t")
        assert agent.performed() == ["one", "below"]
        assert [effect["state"] for effect in agent.effects()] == ["confirmed"] * 2


# --- what stays here is never in the way ------------------------------------------------------------------------------

HARMLESS = [
    "git commit -m push", "git push --dry-run", "git stash push", "curl -X GET http://host.test/x", "ssh -V",
    "curl -G -d q=x http://host.test/x",
]  # fmt: skip


def test_what_stays_here_runs_without_a_supervisor_and_in_a_cleaned_environment(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        here.there.server.close()
        cleaned = [f'env -i PATH="$PATH" {text}' for text in HARMLESS[2:]]
        for number, text in enumerate([*HARMLESS[:2], *cleaned], start=1):
            done = here.run(text)
            assert done.returncode == 0, (text, done.stderr)
            assert len(here.done) == number
        assert here.run(f'env -i PATH="$PATH" {SURE}').returncode == shim.REFUSED
        assert len(here.done) == len(HARMLESS)
        raise AttemptDies


def test_what_reaches_outside_in_a_cleaned_environment_is_on_record(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        assert here.run(f'env -i PATH="$PATH" {SURE}').returncode == 0
        assert here.there.intended() == [("POST 127.0.0.1:9/comment", "tell")]
        raise AttemptDies


def test_a_process_of_an_attempt_that_is_over_reaches_nothing(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        old = {environment.ATTEMPT: "run.0"}
        assert here.run(SURE, **old).returncode == shim.REFUSED
        assert here.done == []
        assert here.run(SURE, **{environment.ATTEMPT: "another.7"}).returncode == 0, "a run inside this one"
        raise AttemptDies


# --- the user's own classes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[outwards]]\nkind='x'\nprograms=['ship']", "it holds 'outwards'"),
        ("[outward]\nkind='x'\nprograms=['ship']", "two brackets"),
        ("outward = 3", "two brackets"),
        (
            "[[outward]]\nkind='x'\nprograms=['ship']\nresolve='nonsense'",
            "no such resolve: nonsense; known: bq-query",
        ),
        ("[[outward]]\nkind='x'\nprograms=['ship']\nwords=-5", "words is less than 0"),
        ("[[outward]]\nkind='x'\nprograms=['']", "not the plain name"),
        ("[[outward]]\nkind='x'\nprograms=['sh ip/../x']", "not the plain name"),
        ("\xff", "cannot be read"),
    ],
)
def test_nonsense_among_the_users_classes_is_refused_at_the_start(
    text: str, said: str, state: Isolated
) -> None:
    path = ours.user_folder() / outward.OWN_CLASSES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=outward.OWN_CLASSES) as caught:
        outward.OutwardCalls(os.environ)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "outward = []\n"])
def test_an_empty_file_of_classes_adds_nothing(text: str, tmp_path: Path, state: Isolated) -> None:
    path = ours.user_folder() / outward.OWN_CLASSES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    outward.OutwardCalls(os.environ)
    assert client(tmp_path / "nobody", before("claude", LOCAL)).returncode == 0
    assert client(tmp_path / "nobody", before("claude", POST)).returncode == 2
