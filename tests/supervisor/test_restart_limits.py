"""Nothing starts for ever, whoever dies: the limits hold across supervisors, and a person's word is what lifts them."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.processes import reap
from outlast.store.local import Local
from outlast.supervisor.guardian import lock
from outlast.workspace.capture.saver import Saver
from tests.supervisor.host import Host
from tests.supervisor.supervised_command import Night, outlast, supervisor_of
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive, kill_at_once, wait_for
from tests.support.vaults import shown

# Kills guardian and supervisor at one instant, so that neither says a word; it dies with them.
MURDER = "s=$PPID; g=$(cut -d' ' -f4 /proc/$s/stat); kill -STOP $g $s; kill -9 $g $s; sleep 1000"
STARTS_MAX = 8


def ran(host: Host) -> int:
    path = host.folder / "ran"
    return len(path.read_text().split()) if path.exists() else 0


def last_end(host: Host) -> ev.AttemptEnded:
    return [event for event in host.events("t") if isinstance(event, ev.AttemptEnded)][-1]


# -- who kills its supervisor --------------------------------------------------------------------------------------


def test_a_command_that_kills_its_supervisor_is_quarantined_when_the_line_is_typed_again_and_again(
    host: Host,
) -> None:
    (host.repository("t") / "scratch.txt").write_text("untracked, and always the same\n")
    codes = []
    for _ in range(STARTS_MAX):
        codes.append(host.start("t", "bash", "-c", f"echo x >> ../ran; {MURDER}").wait(TIMEOUT_S))
        if host.status("t") == "failed":
            break
    assert (codes, ran(host)) == ([-9, -9, -9, 3], 3)
    end = last_end(host)
    assert (end.status, end.cause, end.wanted) == ("failed", "quarantine", True)
    assert "3 attempts in a row made no progress" in end.evidence
    assert "`outlast resume t` allows another try" in host.said("t")
    host("resume", "t", cwd=host.folder / "t")
    assert ran(host) == 4, "a person's word, and only that, starts it once more"


def test_a_run_that_reached_its_limit_unseen_is_not_woken_and_that_is_on_record(host: Host) -> None:
    agent = f"echo x >> ../ran; date +%N >> work.txt; {MURDER}"
    host.start("t", "bash", "-c", agent, options=("--restarts", "3")).wait(TIMEOUT_S)
    for _ in range(STARTS_MAX):
        [told] = host("resume", "--all", "--json").json
        if told["started"] is None:
            break
        wait_for(lambda: not host.pids() or None, what="the end of it")
    assert ran(host) == 3
    assert told["why"].startswith("quarantined: all 3 allowed attempts are used")
    assert (host.status("t"), last_end(host).cause) == ("failed", "quarantine")
    assert host("resume", "--all").code == 0
    assert ran(host) == 3


def test_a_person_who_resumes_after_each_death_is_never_refused(host: Host) -> None:
    host.start("t", "bash", "-c", f"echo x >> ../ran; {MURDER}").wait(TIMEOUT_S)
    for number in range(2, 6):
        host("resume", "t", cwd=host.folder / "t")
        assert ran(host) == number


def test_what_a_quarantined_command_left_is_in_a_save(host: Host) -> None:
    host.start("t", "bash", "-c", f"echo left > work.txt; {MURDER}", options=("--restarts", "1")).wait(
        TIMEOUT_S
    )
    [told] = host("resume", "--all", "--json").json
    assert told["why"].startswith("quarantined: the only allowed attempt is used")
    save = host.summary("t").state.last_save
    assert shown(host.folder / "t", f"{save}:work.txt") == b"left\n"


# -- what is no progress -------------------------------------------------------------------------------------------


def to_its_end(night: Night, *words: str, **more: str) -> tuple[int, int, str]:
    """Exit code, attempts, and what was said."""
    process = night.start("--task", "t", *words, env=night.environ() | more)
    _, said = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, len((night.folder / "ran").read_text().split()), said.decode()


def test_our_own_words_redirected_into_the_workspace_are_no_progress(night: Night) -> None:
    with open(night.work / "run.log", "wb") as said:
        process = night.start(
            "--task", "t", "--", "sh", "-c", f"echo x >> {night.folder}/ran; date +%N; exit 1", stdout=said, stderr=said
        )  # fmt: skip
    assert process.wait(TIMEOUT_S) == 3
    assert (night.folder / "ran").read_text() == "x\n" * 3


def test_a_step_that_fails_again_and_again_is_no_progress(night: Night) -> None:
    fails = f"{' '.join(outlast('step', 's', '--retry-failed', '--', 'false'))} || exit 1"
    code, attempts, _ = to_its_end(night, "--", "sh", "-c", f"echo x >> {night.folder}/ran; {fails}")
    assert (code, attempts) == (3, 3)


def test_a_worktree_that_cannot_be_set_up_is_named_as_the_cause_and_not_tried_for_ever(night: Night) -> None:
    config = night.isolated.config_home / "outlast"
    config.mkdir()
    (config / "config.toml").write_text(f'[worktree]\nsetup = "echo x >> {night.folder}/ran; exit 7"\n')
    code, attempts, said = to_its_end(night, "--worktree", "--", "true")
    assert (code, attempts) == (3, 3)
    assert "the setup of its worktree failed" in night.attempts()[0]["evidence"]
    assert "the setup of its worktree failed" in said


# -- a person's wish -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["guardian", "supervisor"])
def test_a_signal_during_the_wait_for_the_next_attempt_is_on_record_as_a_wish(host: Host, to: str) -> None:
    process = host.start("t", "false", OUTLAST_RESTART_WAIT_S="600")
    wait_for(lambda: (host.has_ended("t") and "again in" in host.said("t")) or None, what="the wait")
    os.kill(process.pid if to == "guardian" else supervisor_of(process.pid), signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert (last_end(host).wanted, last_end(host).cause) == (True, "signal")
    assert "no more attempts; `outlast resume t` goes on" in host.said("t")
    [told] = host("resume", "--all", "--json").json
    assert (told["wake"], told["started"]) == (False, None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("killed", ["supervisor", "both"])
@pytest.mark.parametrize("to", ["guardian", "supervisor"])
def test_a_wish_outlives_a_supervisor_that_is_killed_in_its_grace(host: Host, to: str, killed: str) -> None:
    stubborn = "trap 'touch ../asked' TERM; touch ../up; while :; do sleep 0.05; done"
    process = host.start("t", "bash", "-c", stubborn)
    wait_for(lambda: (host.folder / "up").exists() or None, what=host.said("t"))
    supervisor = supervisor_of(process.pid)
    os.kill(process.pid if to == "guardian" else supervisor, signal.SIGTERM)
    wait_for(lambda: (host.folder / "asked").exists() or None, what="the grace")
    run = host.summary("t").run
    note = host.root / "runs" / run / "guardian.json"
    wait_for(lambda: note.exists() or None, what="word of it")
    kill_at_once([supervisor, process.pid] if killed == "both" else [supervisor])
    process.wait(TIMEOUT_S)
    [told] = host("resume", "--all", "--json").json
    assert (told["wake"], told["started"]) == (False, None)
    assert "stopped: SIGTERM from" in told["why"]
    assert "stopped supervisor" not in told["why"]
    for proc in reap.find(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(proc.pid, signal.SIGKILL)
    assert host.start("t", "true").wait(TIMEOUT_S) == 0
    assert next(event.wanted for event in host.events("t") if isinstance(event, ev.AttemptEnded))


# -- before the first attempt, and after the last ------------------------------------------------------------------


@pytest.mark.parametrize("how", ["--all", "t"])
def test_a_command_killed_in_its_first_save_goes_on(host: Host, how: str) -> None:
    host.root.mkdir(parents=True)
    with Saver(host.repository("t"), Local(host.root)).lock():  # so that the save waits for us
        host.start("t", "touch", "../ran")
        wait_for(lambda: host.events_if("t") or None, what="the run")
        wait_for(lambda: lock.of(Local(host.root), host.summary("t").run), what="a guardian")
        host.kill_everything()
    assert [ev.tag_of(event) for event in host.events("t")] == ["run_opened"]
    answer = host("resume", how, cwd=host.folder / "t")
    assert answer.code == 0, answer.out + answer.err
    host.comes_to("t", "done")
    assert (host.folder / "ran").exists()


def test_a_check_of_a_dead_attempt_does_not_run_beside_the_next_one(host: Host) -> None:
    options = ("--done", "echo $$ >> ../checks; setsid sleep 1000 & echo $! >> ../checks; wait")
    words = ("t", "true")
    process = host.start(*words, options=options)
    checks = host.folder / "checks"

    def pids() -> list[int]:
        return [int(word) for word in checks.read_text().split()] if checks.exists() else []

    wait_for(lambda: len(pids()) == 2 or None, what="the check")
    kill_at_once([process.pid, supervisor_of(process.pid)])
    process.wait(TIMEOUT_S)
    old = pids()
    assert all(map(alive, old)), "nobody stops them when all that knew them is dead"
    host.start(*words, options=options)
    wait_for(lambda: len(pids()) == 4 or None, what="the next check")
    assert not any(map(alive, old))


def test_waking_a_run_whose_workspace_moved_away_is_told_as_it_is(host: Host) -> None:
    host.start("t", "bash", "-c", "touch ../up; exec sleep 1000")
    wait_for(lambda: (host.folder / "up").exists() or None, what=host.said("t"))
    host.kill_everything()
    (host.folder / "t").rename(host.folder / "elsewhere")
    answer = host("resume", "--all", "--json")
    [told] = answer.json
    assert (answer.code, told["started"]) == (1, False)
    assert "went on" not in told["why"]
    assert str(host.folder / "t") in told["why"]


# -- odd names -----------------------------------------------------------------------------------------------------


def test_a_folder_whose_name_is_no_text_is_refused_in_one_line(host: Host) -> None:
    folder = Path(os.fsdecode(os.fsencode(host.folder) + b"/m\xff"))
    folder.mkdir()
    answer = host("run", "--task", "t", "--", "true", cwd=folder)
    error, hint = answer.err.splitlines()
    assert (answer.code, hint.startswith("hint: ")) == (2, True)
    assert "a name that is not UTF-8" in error
    host.start("other", "true").wait(TIMEOUT_S)
    state = host("state", cwd=folder)
    assert (state.code, state.err.splitlines()[0]) == (2, "error: no run of this project is open")


def test_a_task_begun_anew_is_told_what_its_last_run_left_in_doubt(host: Host) -> None:
    effect = "outlast effect pay -- bash -c 'exit 1'; exit 1"
    assert host.start("t", "bash", "-c", effect).wait(TIMEOUT_S) == 3
    old = host.summary("t").run
    assert host("cancel", "t", cwd=host.folder / "t").code == 0
    host.start("t", "true", options=("--again",)).wait(TIMEOUT_S)
    assert f"effect 1.1 'pay' of run {old} is in doubt and may be done again here" in host.said("t")
