"""A line per beat on standard error: between whole lines of the command, never at its terminal, silent with `-q`."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from outlast.core import events as ev, state as st
from outlast.core.values import Payload
from outlast.supervisor.chronicle.chronicle import Chronicle, Pace
from outlast.supervisor.chronicle.sentences import BeatResult
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing
from tests.supervisor.supervised_command import Night, outlast, supervisor_of
from tests.supervisor.test_detach import KEY
from tests.supervisor.test_output import AT, Rig, rig, rigged
from tests.supervisor.test_terminal import NightScreen, screen
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import python_command, wait_for

__all__ = ["rig", "screen"]

OURS = b"outlast: beat 1  step fix\n"
STEPS = "outlast step one -- true; outlast stage review; outlast step two -- sh -c 'exit 3'; outlast step three -- true"


def said(night: Night, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return commands.run(
        outlast(*words), cwd=night.work, env=night.environ() | more, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def beat_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"outlast: (beat|stage) ", line)]


# -- between the command's lines ---------------------------------------------------------------------------------------


def test_where_both_streams_go_to_one_place_our_line_waits_for_the_end_of_a_line_of_either(
    tmp_path: Path,
) -> None:
    path = tmp_path / "both"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with rigged(tmp_path, to=(fd, fd)) as made:
        made.write(b"half of ")
        assert made.relay.post(OURS)
        made.relay.show_posted()
        assert path.read_bytes() == b"half of ", "the other half is still to come"
        made.write(b"a line\nand ")
        made.relay.show_posted()
        assert path.read_bytes() == b"half of a line\nand ", "the next one has begun"
        made.write(b"more\n")
        made.relay.show_posted()
        made.write(b"last\n", err=True)
    os.close(fd)
    assert path.read_bytes() == b"half of a line\nand more\n" + OURS + b"last\n"


def test_standard_output_elsewhere_has_only_the_commands_bytes_and_holds_no_line_up(rig: Rig) -> None:
    rig.write(b"half of ")
    assert rig.relay.post(OURS)
    rig.relay.show_posted()
    rig.write(b"a line\n")
    assert (rig.said(), rig.said("stderr")) == (b"half of a line\n", OURS)


def test_a_reader_that_takes_none_of_our_lines_holds_up_neither_the_command_nor_the_end(
    tmp_path: Path,
) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    filler = 0
    while True:  # nobody reads, and there is no room
        try:
            filler += os.write(theirs, b"x" * 4096)
        except BlockingIOError:
            break
    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT, 0o600)
    with rigged(tmp_path, to=(out, theirs)) as made:
        for _ in range(100):
            assert made.relay.post(OURS)
            made.relay.show_posted()
        made.write(b"it goes on\n")
        assert (tmp_path / "out").read_bytes() == b"it goes on\n"
        made.hang_up()
        assert made.relay.drain(TIMEOUT_S, reader_limit_s=1.0)
        made.relay.close()
        assert not made.relay.post(OURS), "there is nobody to show it to"
    for fd in (ours, theirs, out):
        os.close(fd)


def test_the_output_of_a_command_is_the_same_whatever_outlast_says_beside_it(night: Night) -> None:
    """Halves of lines for as long as steps end beside them, in one pipe with our lines."""
    halves = "printf 'half '; outlast step s%d -- true; printf 'a line\\n'"
    script = "; ".join(halves % number for number in range(8))
    line = shlex.join([*outlast("run", "--task", "t", "--", "sh", "-c", script)])
    done = subprocess.run(
        ["sh", "-c", f"{line} 2>&1"], cwd=night.work, env=night.environ(OUTLAST_TIMING="supervisor.apart_beat_line_s=0.05"),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if not line.startswith("outlast: ")] == ["half a line"] * 8
    assert len(beat_lines(done.stdout.decode())) > 1


def test_what_outlast_says_at_the_end_begins_below_a_last_line_that_was_not_ended(night: Night) -> None:
    line = shlex.join(outlast("run", "--task", "t", "--", "printf", "no end"))
    done = subprocess.run(
        ["sh", "-c", f"{line} 2>&1"], cwd=night.work, env=night.environ(), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout.decode().splitlines()[:2] == ["no end", "outlast: done"]
    apart = said(night, "run", "--task", "u", "--", "printf", "no end")
    assert (apart.stdout, apart.stderr.splitlines()[0]) == ("no end", "outlast: done")


# -- what a line says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"calls": ["Bash make test", "Edit a.py"]}, "Bash make test; Edit a.py"),
        ({"calls": ["Read a", "Read b", "Read c", "Read d"], "said": "x"}, "Read a; Read b; 2 more"),
        ({"said": f"my key is {KEY}\nand more"}, "said: my key is [masked:Anthropic key]\\nand more"),
        ({"step": "fix", "exit_code": 0}, "step fix"),
        ([{"step": "fix", "exit_code": 0}, {"step": "test", "exit_code": 2}], "step fix; step test (exit 2)"),
        ({"exit_code": 0}, ""),
        ({"calls": 3, "said": None}, ""),
        (["a"], ""),
        (None, ""),
    ],
)
def test_a_beat_is_told_by_what_was_done_in_it(result: object, words: str) -> None:
    assert BeatResult.of(result).words() == words


class Over:
    """The board of a command whose output is over: a person is told below it."""

    def post(self, line: bytes) -> bool:
        return not line


def chronicle_of(written: list[str], **timing: float) -> Chronicle:
    return Chronicle(Person(written.append), None, timing=Timing(**timing))  # type: ignore[arg-type]


def beat(number: int) -> tuple[tuple[ev.AnyEvent, ...], st.RunState]:
    done = ev.BeatDone(at=AT, beat=number, result=Payload(v=b'{"step":"s","exit_code":0}'))  # type: ignore[arg-type]
    return (done,), st.RunState(run="r", task="t", beats=number, attempts=1)


def test_lines_that_come_too_fast_give_way_to_the_newest_and_say_how_many_they_were() -> None:
    written: list[str] = []
    chronicle = chronicle_of(written, apart_beat_line_s=3600.0)
    chronicle.begins(st.RunState(), lambda _: b"")
    chronicle.hear(*beat(1))
    chronicle.flush()
    assert written == [], "the command has not started"
    chronicle.show_on(Over())
    for number in range(1, 8):
        chronicle.hear(*beat(number))
    chronicle.flush()
    assert written == ["beat 1  step s", "beat 7  step s  (+5 more)"], "the last one when an attempt ends"
    chronicle.close()


def test_a_pace_gives_room_again_as_time_passes() -> None:
    now = [0.0]
    pace = Pace(2, 10.0, lambda: now[0])
    for _ in range(2):
        assert pace.wait_s() == 0.0
        pace.take()
    assert pace.wait_s() == 10.0
    now[0] = 4.0
    assert pace.wait_s() == pytest.approx(6.0)
    now[0] = 10.0
    assert pace.wait_s() == 0.0
    pace.take()
    assert pace.wait_s() == 10.0


def test_steps_stages_and_effects_of_a_script_each_have_a_line_at_a_terminal(screen: NightScreen) -> None:
    screen.resize(300)
    script = f"{STEPS}; outlast effect mail -- true; outlast step four -- true"
    screen.type(
        shlex.join(
            outlast("run", "--task", "t", "--headless", "--budget", "beats=9", "--", "sh", "-c", script)
        )
        + "; echo code=$?"
    )
    screen.see("code=0")
    assert beat_lines(screen.text()) == [
        "outlast: beat 1  step one",
        "outlast: stage review",
        "outlast: beat 2  step two (exit 3)",
        "outlast: beat 3  step three",
        "outlast: beat 4  effect mail: happened",
        "outlast: beat 4  step four",
    ]


def test_no_line_is_drawn_where_the_command_has_the_terminal(screen: NightScreen) -> None:
    screen.resize(300)
    screen.type(shlex.join(outlast("run", "--task", "t", "--", "sh", "-c", STEPS)) + "; echo code=$?")
    screen.see("code=0")
    assert beat_lines(screen.text()) == []
    assert "outlast: t: 1 attempt, 4 beats" in screen.text(), "what it took is said when the terminal is back"


def test_a_log_gets_the_first_line_and_the_last_and_at_most_one_a_minute_between(night: Night) -> None:
    script = "; ".join(f"outlast step s{number} -- true" for number in range(6))
    done = said(night, "run", "--task", "t", "--", "sh", "-c", script)
    assert [line.split("  (")[0] for line in beat_lines(done.stderr)] == [
        "outlast: beat 1  step s0",
        "outlast: beat 6  step s5",
    ]


@pytest.mark.parametrize("how", ["-q", "setting"])
def test_quiet_says_nothing_of_a_run_that_is_done_and_all_that_needs_a_person(night: Night, how: str) -> None:
    more = {"OUTLAST_QUIET": "1"} if how == "setting" else {}
    flags = ["-q"] if how == "-q" else []
    done = said(night, "run", "--task", "t", *flags, "--", "sh", "-c", f"{STEPS}; echo done", **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    failed = said(
        night, "run", "--task", "u", *flags, "--", "sh", "-c", "outlast effect mail -- false", **more
    )
    assert (failed.returncode, failed.stdout) == (3, "")
    *_, last = failed.stderr.splitlines()
    assert last.startswith("outlast: needs a person: in doubt: 1.1 'mail'; look"), failed.stderr
    assert "1 attempt" not in failed.stderr


def test_a_repository_decides_neither_what_a_person_reads_nor_where_json_lines_go(night: Night) -> None:
    for line in ("quiet = true", f'json_lines = "{night.folder}/stolen"'):
        (night.work / "outlast.toml").write_text(line + "\n")
        refused = said(night, "run", "--task", "t", "--", "true")
        assert (refused.returncode, "only your own file may set it" in refused.stderr) == (2, True), (
            refused.stderr
        )
    assert not (night.folder / "stolen").exists()


# -- where nobody watches ------------------------------------------------------------------------------------------------


def log_of(night: Night, task: str) -> str:
    run = night.ask("show", task)["run"]
    return (night.isolated.state_home / "outlast/runs" / run / "supervisor.log").read_text()


def test_the_log_of_a_detached_run_has_its_ending_and_no_line_of_its_beats(night: Night) -> None:
    assert said(night, "run", "--task", "t", "--detach", "--", "sh", "-c", STEPS).returncode == 0
    wait_for(lambda: night.ask("show", "t")["status"] == "done" or None, what="the end")
    wait_for(lambda: "; next: " in log_of(night, "t") or None, what="its ending")
    assert [line.split(", ")[0] for line in log_of(night, "t").splitlines()] == [
        "outlast: done", "outlast: t: 1 attempt",
    ]  # fmt: skip


def test_a_run_that_the_service_wakes_logs_what_it_resumes_and_its_ending_alone(night: Night) -> None:
    process = night.start_agent()
    night.ready(1)
    os.kill(supervisor_of(process.pid), signal.SIGKILL)
    process.wait(timeout=TIMEOUT_S)
    night.let_go()
    assert said(night, "resume", "--all").returncode == 0
    wait_for(lambda: night.ask("show", "t")["status"] == "done" or None, what="the end")
    wait_for(lambda: "; next: " in log_of(night, "t") or None, what="its ending")
    log = log_of(night, "t").splitlines()
    assert log[0].startswith("outlast: resumes t: attempt 2, beat 1; files kept"), log
    assert beat_lines("\n".join(log)) == []
    assert len(log) <= 6, log


# -- what a resume resumes -----------------------------------------------------------------------------------------------


def test_a_killed_supervisor_has_an_ending_and_the_next_start_says_what_it_resumes(night: Night) -> None:
    process = night.start_agent()
    night.ready(1)
    os.kill(supervisor_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=TIMEOUT_S)
    last = err.decode().splitlines()[-1]
    assert last.startswith("outlast: the supervisor was killed (SIGKILL)"), last
    run = night.ask("show", "t")["run"]
    assert (
        f"its files are save {night.ask('show', 't')['saves'][-1]['commit'][:12]}" in last
        or "its files are save" in last
    )
    assert last.endswith(f"; `outlast resume {run}` goes on"), last
    night.let_go()
    again = said(night, "resume", run)
    assert again.returncode == 0, again.stderr
    assert re.search(
        r"^outlast: resumes t: attempt 2, beat 1; files kept(, changes in save \w{12})?; before: the supervisor was killed",
        again.stderr, re.MULTILINE,
    )  # fmt: skip


def test_an_effect_that_a_kill_cut_off_is_named_when_the_run_goes_on(night: Night) -> None:
    act = night.folder / "act.py"
    act.write_text(f"import time\nopen({str(night.folder / 'acted')!r}, 'w').close()\ntime.sleep(1000)\n")
    script = f"outlast effect mail --probe true -- {shlex.join(python_command(act))}"
    process = night.start("--task", "t", "--", "sh", "-c", script)
    wait_for(lambda: (night.folder / "acted").exists() or None, what="the act")
    os.kill(supervisor_of(process.pid), signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_S)
    again = said(night, "run", "--task", "t", "--", "sh", "-c", script)
    assert again.returncode == 0, again.stderr
    assert "outlast: resumes t: attempt 2, beat 1; cut off: mail; files kept" in again.stderr, again.stderr
