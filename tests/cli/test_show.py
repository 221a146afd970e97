import contextlib
import json
import re
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import outlast
from outlast.core import events as ev
from outlast.core.values import Contract, Payload
from outlast.runs.opening.project import project_of
from outlast.store import open_store
from tests.cli.command_line import Cli, LiveAgent, work
from tests.store.test_other_processes import UNKNOWN, inject
from tests.support.environment import TIMEOUT_S, need_tool

SHOWN = {
    "run", "task", "project", "generation", "status", "cause", "evidence", "goal", "checks", "invariants", "plan",
    "plan_total", "cursor", "beats", "completed", "effects", "memory", "budget", "saves", "session", "attempts",
    "children", "parent", "fork", "workspace", "holder", "stage", "parked_until", "created_at", "updated_at", "asks",
    "pending", "within", "inside", "worktree", "waits_for",
}  # fmt: skip
EFFECT = {
    "id", "key", "name", "state", "policy", "args", "result", "evidence", "intended_at", "settled_by", "attempts", "beat",
}  # fmt: skip
ATTEMPT = {
    "epoch", "host", "pid", "started_at", "ended_at", "status", "cause", "evidence", "exit_code", "version", "code",
    "command",
}  # fmt: skip
LISTED = {
    "standing", "needs", "why", "asks", "pending", "worktree", "waits_for",
    "run", "task", "project", "generation", "status", "cause", "goal", "beats", "plan_total", "in_doubt",
    "tokens_spent", "created_at", "updated_at", "parked_until", "problem",
}  # fmt: skip


def test_the_fields_of_show_json_are_a_contract(cli: Cli) -> None:
    run = work(beats=3, doubt_at=3, budget="500k", done=["true"], invariants=["true"])
    shown = cli.ok("show", "1411", "--json").json
    assert shown.pop("by_hand") is None, "no agent of a supervisor's"
    assert shown.pop("standing") == "in_doubt"
    assert shown.pop("needs") == "person"
    judged = ("standing", "needs")
    assert shown == {name: value for name, value in cli.show().items() if name not in judged}
    assert set(shown) == SHOWN
    assert (shown["run"], shown["task"], shown["status"], shown["cause"]) == (
        run,
        "1411",
        "in_doubt",
        "crash",
    )
    assert (shown["goal"], shown["checks"], shown["invariants"]) == ("Trap exit signals", ["true"], ["true"])
    assert (shown["beats"], shown["plan_total"], shown["cursor"]) == (2, 5, [1])
    assert [set(each) for each in shown["completed"]] == [{"beat", "step", "result", "evidence", "at"}] * 2
    assert shown["completed"][1]["result"] == {"said": "text"}
    assert [step["state"] for step in shown["plan"]] == ["done", "next", "to_do", "to_do"]
    assert [step["name"] for step in shown["plan"][0]["steps"]] == ["read", "draft"]
    assert all(set(effect) == EFFECT for effect in shown["effects"])
    assert [effect["state"] for effect in shown["effects"]] == ["confirmed", "confirmed", "in_doubt"]
    assert shown["effects"][0]["args"] == [[], {"body": "text", "issue": 1}]
    assert shown["effects"][2]["id"] == "3.1"
    assert all(set(attempt) == ATTEMPT for attempt in shown["attempts"])
    assert shown["attempts"][0]["cause"] == "crash"
    assert shown["budget"]["tokens"] == 500_000
    assert shown["budget"]["spent"]["tokens"] == 300
    assert shown["budget"]["left"]["tokens"] == 499_700
    assert shown["memory"] == [{"name": "notes", "uri": "file:notes.md"}]
    assert (shown["saves"], shown["session"], shown["holder"], shown["parent"]) == ([], None, None, None)


def test_show_says_in_a_few_lines_what_a_person_has_to_do(cli: Cli) -> None:
    work(beats=3, doubt_at=3, budget="500k")
    answer = cli.ok("show", "1411")
    first, *rest = answer.out.splitlines()
    assert first == "1411  in doubt   attempt 1   beat 3 of 5   300 of 500,000 tokens"
    assert any(line.startswith("  effect 3.1  comment body=text issue=3   intended ") for line in rest)
    assert answer.err.splitlines() == [
        "error: 1 effect is in doubt and cannot be probed",
        "hint: look whether it happened, then `outlast settle 1411 3.1 --happened` or `--did-not`",
    ]


def test_a_killed_run_is_shown_as_what_its_next_attempt_will_find(cli: Cli, agent: LiveAgent) -> None:
    live = cli.show()
    assert (live["status"], live["holder"]["pid"]) == ("running", agent.process.pid)
    assert live["effects"][0]["state"] == "open"
    agent.kill()
    dead = cli.show()
    assert (dead["status"], dead["cause"], dead["holder"]) == ("in_doubt", "crash", None)
    assert dead["effects"][0]["state"] == "in_doubt"
    assert dead["attempts"][0]["cause"] == "crash"
    assert str(agent.process.pid) in dead["evidence"]


def test_ls_lists_this_project_and_with_all_every_project(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = work(beats=5)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    theirs = work(beats=2)
    monkeypatch.chdir(cli.folder)
    listed = cli.ok("ls", "--json").json
    assert [set(each) for each in listed] == [LISTED]
    assert [(each["run"], each["status"]) for each in listed] == [(mine, "done")]
    assert [each["run"] for each in cli.ok("ls", "--all", "--json").json] == [theirs, mine]
    assert [each["run"] for each in cli.ok("ls", "--json", "--project", str(other)).json] == [theirs]
    human = cli.ok("ls", "--all").out.splitlines()
    assert human[0].split() == ["PROJECT", "TASK", "STATUS", "BEATS", "UPDATED", "RUN", "GOAL", "WHY"]
    assert human[1].split()[:4] == ["other", "1411", "left", "2/5"]


def test_ls_tells_of_a_run_that_cannot_be_read_among_the_others(cli: Cli) -> None:
    newer, known = work("newer", beats=2), work("known", beats=2)
    with contextlib.closing(open_store(cli.root)) as store:
        inject(store, newer, UNKNOWN)
    listed = {each["run"]: each for each in cli.ok("ls", "--json").json}
    assert listed[known]["problem"] == ""
    assert "upgrade" in listed[newer]["problem"]
    human = cli.ok("ls")
    assert [line.split()[:4] for line in human.out.splitlines()[2:]] == [["newer", "cannot", "be", "read"]]
    assert f"{newer}: cannot be read" in human.err
    assert "upgrade" in cli("show", newer).err


def test_without_any_store_there_are_no_runs_and_none_is_made(cli: Cli) -> None:
    assert cli.ok("ls", "--json").json == []
    assert "no runs" in cli.ok("ls").err
    assert "no store at " in cli("show", "1411").complaint
    assert "no store at " in cli("ls", "--store", "typo").complaint
    assert not cli.root.exists()
    assert not (cli.folder / "typo").exists()


def test_two_projects_with_one_task_name_do_not_see_each_other(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = work("12", beats=1)
    other = tmp_path / "lib"
    other.mkdir()
    monkeypatch.chdir(other)
    theirs = work("12", beats=2)
    monkeypatch.chdir(cli.folder)
    for name, run in (("12", mine), ("lib:12", theirs), ("app:12", mine)):
        assert cli.ok("show", name, "--json").json["run"] == run
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stranger = Cli(elsewhere, cli.isolated)
    complaint = stranger("show", "12").complaint
    assert mine in complaint
    assert theirs in complaint
    assert stranger.show(theirs)["run"] == theirs


def test_a_run_is_found_by_id_prefix_and_task_and_the_own_task_wins(cli: Cli) -> None:
    run = work(beats=1)
    assert cli.show(run)["run"] == run
    assert cli.show(run[:6])["run"] == run
    named_like_it = work(run[:6], beats=1)
    assert cli.show(run[:6])["run"] == named_like_it
    for name in ("*", "[a-z]*", "", "?", f"{run[:3]}*"):
        assert "no such run" in cli("show", name).complaint


def test_the_newest_run_of_a_task_is_meant(cli: Cli) -> None:
    first = work()
    second = work(again=True, beats=1)
    assert cli.show()["run"] == second
    assert cli.show()["generation"] == 2
    assert cli.show(first)["status"] == "done"


def test_what_an_agent_wrote_cannot_steer_the_terminal(cli: Cli) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\nfake: line\r\u202etxt"
    with outlast.run("1411", goal=evil) as run:
        run.plan([evil, "b"])
        for beat in run.beats():
            beat.act(evil[:20], lambda text: text, evil)
            beat.remember("notes", "file:\x1b[2Jnotes")
            beat.done(evil, evidence=evil)
            break
    for words in (["show", "1411"], ["ls"], ["log", "1411"], ["effects", "1411"]):
        answer = cli.ok(*words)
        for stream in (answer.out, answer.err):
            assert all(char.isprintable() or char == "\n" for char in stream), stream
            assert not any(line.startswith("fake:") for line in stream.splitlines())
    assert cli.show()["completed"][0]["result"] == evil


def test_json_has_no_control_character_that_a_terminal_obeys(cli: Cli) -> None:
    evil = "\x9b2J\x85\x90\x7f\u2028é"
    with outlast.run("1411", goal=evil) as run:
        for beat in run.beats():
            beat.act("say", lambda text: text, evil)
            beat.done({evil: evil})
            break
    said = {
        name: cli.ok(*name.split(), "--json").out for name in ("show 1411", "ls", "log 1411", "effects 1411")
    }
    for text in said.values():
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        assert "\u2028" in text, "what is harmless stays as it is"
    assert json.loads(said["show 1411"])["completed"][0]["result"] == {evil: evil}
    assert json.loads(said["ls"])[0]["goal"] == evil
    assert evil in json.loads(said["effects 1411"])[0]["args"][0]
    assert json.loads(said["log 1411"].split("\n")[0])["event"]["contract"]["goal"] == evil


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [need_tool("git"), *words], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout.strip()


def test_an_attempt_names_its_commit_wherever_git_keeps_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code(task: str) -> str:
        work(task, beats=1)
        return str(cli.show(task)["attempts"][0]["code"])

    git(cli.folder, "init")
    assert code("unborn") == "refs/heads/main"
    git(cli.folder, "commit", "--allow-empty", "-m", "one")
    commit = git(cli.folder, "rev-parse", "HEAD")
    assert code("loose") == commit
    git(cli.folder, "pack-refs", "--all")
    assert not (cli.folder / ".git/refs/heads/main").exists()
    assert code("packed") == commit
    git(cli.folder, "worktree", "add", "-b", "side", tmp_path / "tree")
    git(tmp_path / "tree", "commit", "--allow-empty", "-m", "two")
    monkeypatch.chdir(tmp_path / "tree")
    assert code("worktree") == git(tmp_path / "tree", "rev-parse", "HEAD") != commit
    git(tmp_path / "tree", "checkout", "--detach", "HEAD~")
    assert code("detached") == commit


def test_log_has_every_event_and_goes_on_after_a_number(cli: Cli) -> None:
    run = work(beats=2)
    lines = [json.loads(line) for line in cli.ok("log", "1411", "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(set(line) == {"n", "run", "seq", "event"} for line in lines)
    assert (lines[0]["run"], lines[0]["event"]["t"]) == (run, "run_opened")
    later = [json.loads(line) for line in cli.ok("log", "1411", "--json", "--after", "5").out.splitlines()]
    assert later == lines[5:]
    human = cli.ok("log", "1411").out.splitlines()
    assert len(human) == len(lines)
    assert "run_opened" in human[0]


def test_log_follow_shows_events_as_they_happen_and_ends_with_the_run(cli: Cli, agent: LiveAgent) -> None:
    with cli.started(sys.executable, "-m", "outlast", "log", "1411", "--follow", "--json") as follower:
        assert follower.stdout is not None
        kinds = []
        for beat in (1, 2, 3):
            while not kinds or kinds[-1] != "effect_intended":
                kinds.append(json.loads(follower.stdout.readline())["event"]["t"])
            assert kinds.count("beat_done") == beat - 1
            agent.go_on()
            while kinds[-1] != "beat_done":
                kinds.append(json.loads(follower.stdout.readline())["event"]["t"])
        kinds += [json.loads(line)["event"]["t"] for line in follower.stdout]
        assert follower.wait(TIMEOUT_S) == 0
        assert kinds[-2:] == ["finished", "attempt_ended"]
        assert kinds.count("beat_done") == 3
    assert agent.end()[0] == 0


def test_a_reader_that_goes_away_is_no_error(cli: Cli) -> None:
    work(beats=5)
    command = f"{shlex.quote(sys.executable)} -m outlast log 1411 | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env=cli.environ, cwd=cli.folder, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    assert done.returncode in (0, 141)


def test_ctrl_c_is_quiet(cli: Cli, agent: LiveAgent) -> None:
    with cli.started(sys.executable, "-m", "outlast", "log", "1411", "--follow") as follower:
        assert follower.stdout is not None
        follower.stdout.readline()
        follower.send_signal(2)
        _, err = follower.communicate(timeout=TIMEOUT_S)
        assert (follower.returncode, err) == (130, "")


def test_effects_lists_each_with_its_fate(cli: Cli) -> None:
    work(beats=2, doubt_at=2)
    listed = cli.ok("effects", "1411", "--json").json
    assert [(each["id"], each["state"]) for each in listed] == [("1.1", "confirmed"), ("2.1", "in_doubt")]
    rows = cli.ok("effects", "1411").out.splitlines()
    assert rows[0].split() == ["ID", "STATE", "ACT", "POLICY", "KEY", "OUTCOME"]
    assert "TimeoutError: no answer" in rows[2]


def test_context_is_the_one_the_agent_would_get(cli: Cli) -> None:
    work(beats=2)
    text = cli.ok("context", "1411").out
    with outlast.run("1411") as run:
        assert text == run.context() + "\n"
    small = cli.ok("context", "1411", "--tokens", "200", "--json").json
    assert small["tokens"] <= 200
    assert cli("context", "1411", "--tokens", "5").complaint == "--tokens must be 200 or more, got 5"


def test_a_run_of_100_000_beats_still_shows(cli: Cli) -> None:
    at = datetime.now(UTC)
    opened = ev.RunOpened(
        at=at, run="kkkkkkkkkkkk", task="1411", project=project_of(cli.folder), contract=Contract("long")
    )
    store = open_store()
    payload = Payload(v=msgspec.Raw(b'"done"'))
    store.create(opened, [ev.BeatDone(at=at, beat=n, step="x", result=payload) for n in range(1, 100_001)])
    store.close()
    start = time.monotonic()
    human = cli.ok("show", "1411", "--last", "40").out.splitlines()
    assert time.monotonic() - start < 60
    assert sum(line.startswith("  beat ") for line in human) == 40
    assert human[-1] == '  beat 100000  x  "done"'
    shown = cli.ok("show", "1411", "--json").json
    assert (shown["beats"], len(shown["completed"])) == (100_000, 100_000)
