"""The probe of a push against a real bare remote; the remote's own refs are the witness."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from outlast.agents.outward import probes
from outlast.agents.outward.classify import Outward, classify
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Finding, Happened
from tests.support.environment import Isolated
from tests.support.processes import alive, running, wait_for


class PushedClone:
    """A clone with one commit pushed and one not, and hooks on both sides that stop where they are told to."""

    def __init__(self, folder: Path, state: Isolated) -> None:
        self.folder, self.environment = folder, state.environ(GIT_CONFIG_NOSYSTEM="1")
        self.remote, self.clone = folder / "remote.git", folder / "clone"
        self.git(folder, "init", "-q", "--bare", str(self.remote))
        self.git(folder, "init", "-q", "-b", "topic", str(self.clone))
        self.git(self.clone, "remote", "add", "origin", str(self.remote))
        self.commit("one")
        self.git(self.clone, "push", "-q", "origin", "topic")
        self.commit("two")

    def git(self, place: Path, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def commit(self, text: str) -> None:
        (self.clone / "file").write_text(text)
        self.git(self.clone, "add", ".")
        self.git(self.clone, "commit", "-qm", text)

    def refs(self) -> dict[str, str]:
        listed = self.git(self.remote, "for-each-ref", "--format=%(refname) %(objectname)")
        return dict(line.split() for line in listed.splitlines())

    def stops_in(self, hook: str) -> None:
        """The hook says that it was reached, and waits on a pipe that nobody opens."""
        hook, _, phase = hook.partition(":")
        place = (self.clone / ".git" if hook == "pre-push" else self.remote) / "hooks" / hook
        os.mkfifo(self.folder / "never")
        only = f'[ "$1" = {phase} ] || exit 0\n' if phase else ""
        place.write_text(
            f"#!/bin/sh\n[ ! -e '{self.folder}/reached' ] || exit 0\n{only}echo > '{self.folder}/reached'\nread line < '{self.folder}/never'\n"
        )
        place.chmod(0o755)

    def outward(self, text: str) -> Outward:
        (found,) = classify("Bash", text, str(self.clone), environment=self.environment)
        return found

    def facts(self, outward: Outward) -> dict[str, object]:
        recorded: dict[str, object] = json.loads(json.dumps(probes.facts(outward, self.environment)))
        return recorded

    def look(self, outward: Outward, recorded: dict[str, object]) -> Finding:
        return probes.look(outward, recorded, self.environment)

    def run(self, text: str) -> None:
        subprocess.run(
            ["sh", "-c", text],
            cwd=self.clone,
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=60,
        )

    def killed_when_reached(self, text: str, *, everything: bool) -> None:
        """Kill -9 at the hook: all of them, or only the push itself, whose far side then goes on."""
        with running(["sh", "-c", f"exec {text}"], cwd=self.clone, env=self.environment) as process:
            wait_for((self.folder / "reached").exists, what="the hook")
            if everything:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            else:
                process.kill()
                process.wait()
                others = _group(process.pid)
                # Opening and closing the pipe lets the hook read the end of it and go on.
                os.close(os.open(self.folder / "never", os.O_WRONLY))
                wait_for(lambda: not any(alive(pid) for pid in others), what="the far side to end")


def _group(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getpgid(int(entry)) == group:
                found.append(int(entry))
        except ProcessLookupError:
            continue
    return found


@pytest.fixture
def world(tmp_path: Path, state: Isolated) -> PushedClone:
    return PushedClone(tmp_path, state)


HOOKS = [
    "pre-push",
    "pre-receive",
    "update",
    "reference-transaction:prepared",
    "reference-transaction:committed",
    "post-receive",
    "post-update",
]


@pytest.mark.parametrize("everything", [True, False], ids=["all killed", "only the push killed"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_push_killed_half_way_is_told_truthfully(world: PushedClone, hook: str, everything: bool) -> None:
    outward = world.outward("git push origin topic")
    recorded, before = world.facts(outward), world.refs()
    world.stops_in(hook)
    world.killed_when_reached("git push -q origin topic", everything=everything)
    after = world.refs()
    assert after in (before, {"refs/heads/topic": world.git(world.clone, "rev-parse", "topic")})
    finding = world.look(outward, recorded)
    assert isinstance(finding, DidNotHappen if after == before else Happened)


def test_a_push_that_was_never_made_or_was_made_whole(world: PushedClone) -> None:
    for text in (
        "git push",
        "git push -u origin HEAD",
        "git push --force origin topic:other",
        "git push origin HEAD:refs/heads/third",
    ):
        outward = world.outward(text)
        recorded = world.facts(outward)
        assert isinstance(world.look(outward, recorded), DidNotHappen), text
        world.run(text.replace("push", "push -q", 1) + (" origin topic" if text == "git push" else ""))
        finding = world.look(outward, recorded)
        assert isinstance(finding, Happened), text
        world.git(
            world.remote, "update-ref", "refs/heads/topic", world.git(world.clone, "rev-parse", "topic~1")
        )


def test_a_commit_made_by_the_same_line_is_not_mistaken_for_the_one_before(world: PushedClone) -> None:
    world.git(
        world.clone, "push", "-q", "origin", "topic"
    )  # so that both sides are equal when the call begins
    text = "git commit -q --allow-empty -m three && git push -q origin topic"
    outward = world.outward(text)
    recorded = world.facts(outward)
    assert isinstance(world.look(outward, recorded), DidNotHappen), "killed before the commit"
    world.run("git commit -q --allow-empty -m three")
    assert isinstance(world.look(outward, recorded), DidNotHappen), "killed after the commit, before the push"
    world.run("git push -q origin topic")
    assert isinstance(world.look(outward, recorded), Happened)
    world.run("git commit -q --allow-empty -m four")
    assert isinstance(world.look(outward, recorded), Happened), "the branch went on locally"


def test_a_new_branch_of_the_same_line(world: PushedClone) -> None:
    text = "git checkout -q -b fresh && git push -q -u origin HEAD"
    outward = world.outward(text)
    assert outward.signature == "push origin refs/heads/fresh"
    recorded = world.facts(outward)
    assert isinstance(world.look(outward, recorded), DidNotHappen)
    world.run(text)
    assert isinstance(world.look(outward, recorded), Happened)


def test_somebody_else_s_push_is_not_ours(world: PushedClone) -> None:
    outward = world.outward("git push origin topic")
    recorded = world.facts(outward)
    tree = world.git(world.remote, "rev-parse", "topic^{tree}")
    theirs = world.git(
        world.remote,
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@x",
        "commit-tree",
        "-m",
        "theirs",
        "-p",
        "topic",
        tree,
    )
    world.git(world.remote, "update-ref", "refs/heads/topic", theirs)
    assert isinstance(world.look(outward, recorded), CannotTell)


def test_a_push_on_top_of_ours_still_means_that_ours_happened(world: PushedClone) -> None:
    outward = world.outward("git push origin topic")
    recorded = world.facts(outward)
    world.commit("three")
    world.git(world.clone, "push", "-q", "origin", "topic")
    assert isinstance(world.look(outward, recorded), Happened)


def test_several_refs_of_which_some_went_are_neither(world: PushedClone) -> None:
    world.git(world.clone, "branch", "second")
    for text in ("git push origin topic second", "git push --all origin"):
        outward = world.outward(text)
        recorded = world.facts(outward)
        assert isinstance(world.look(outward, recorded), DidNotHappen)
        world.git(world.clone, "push", "-q", "origin", "second")
        assert isinstance(world.look(outward, recorded), CannotTell)
        world.git(world.clone, "push", "-q", "origin", "topic")
        assert isinstance(world.look(outward, recorded), Happened)
        world.git(world.remote, "update-ref", "-d", "refs/heads/second")
        world.git(
            world.remote, "update-ref", "refs/heads/topic", world.git(world.clone, "rev-parse", "topic~1")
        )


def test_a_deletion(world: PushedClone) -> None:
    outward = world.outward("git push origin --delete topic")
    recorded = world.facts(outward)
    assert isinstance(world.look(outward, recorded), DidNotHappen)
    world.git(world.remote, "update-ref", "-d", "refs/heads/topic")
    assert isinstance(world.look(outward, recorded), Happened)


def test_a_tag(world: PushedClone) -> None:
    world.git(world.clone, "tag", "-a", "v1", "-m", "x")
    outward = world.outward("git push origin v1")
    assert outward.signature == "push origin refs/tags/v1"
    recorded = world.facts(outward)
    assert isinstance(world.look(outward, recorded), DidNotHappen)
    world.git(world.clone, "push", "-q", "origin", "v1")
    assert isinstance(world.look(outward, recorded), Happened)


def test_without_what_was_before_only_a_happened_can_be_said(world: PushedClone) -> None:
    outward = world.outward("git push origin topic")
    recorded = {**world.facts(outward), "before": None}
    assert isinstance(world.look(outward, recorded), CannotTell)
    world.run("git push -q origin topic")
    assert isinstance(world.look(outward, recorded), Happened)


def test_a_remote_that_is_gone_or_hostile_cannot_tell_and_runs_nothing(world: PushedClone) -> None:
    outward = world.outward("git push origin topic")
    recorded = world.facts(outward)
    made = world.folder / "made"
    for url in (
        str(world.folder / "gone"),
        f"ext::sh -c 'touch {made}'",
        f"--upload-pack=touch {made}",
        "http://127.0.0.1:1/x",
        "",
    ):
        world.git(world.clone, "config", "remote.origin.url", url)
        assert isinstance(world.look(outward, recorded), CannotTell), url
    world.git(world.clone, "config", "remote.origin.url", "ssh://host.invalid/x")
    world.git(world.clone, "config", "core.sshCommand", f"touch {made}")
    world.git(world.clone, "config", "credential.helper", f"!touch {made}")
    assert isinstance(world.look(outward, recorded), CannotTell)
    assert not made.exists()


def test_a_remote_that_hangs_is_given_up_in_time(world: PushedClone) -> None:
    environment = {**world.environment, "GIT_SSH_COMMAND": f"sh -c 'read line < {world.folder}/never' --"}
    os.mkfifo(world.folder / "never")
    world.git(world.clone, "config", "remote.origin.url", "ssh://host.invalid/x")
    outward = world.outward("git push origin topic")
    assert probes.facts(outward, environment, timeout_s=0.5)["before"] is None
    assert isinstance(probes.look(outward, {}, environment, timeout_s=0.5), CannotTell)
