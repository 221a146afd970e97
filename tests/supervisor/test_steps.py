"""`outlast step` and `outlast effect` inside a run: recorded once, replayed to the byte, done once, or in doubt."""

import subprocess
from pathlib import Path

import pytest

from tests.supervisor.night import Night, outlast
from tests.support.environment import TIMEOUT_S

FAILS_ONCE = "[ -e failed ] || { touch failed; kill -9 $$; }\n"


def script(night: Night, text: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script of bash under `outlast run`, with `outlast` on its PATH."""
    place = night.folder / "bin"
    place.mkdir(exist_ok=True)
    (place / "outlast").write_text(f'#!/bin/sh\nexec {" ".join(outlast())} "$@"\n')
    (place / "outlast").chmod(0o755)
    (night.folder / "script.sh").write_text(text)
    words = outlast("run", "--task", "t", *more, "--", "bash", str(night.folder / "script.sh"))
    environ = night.environ() | {"W": str(night.folder)}
    environ["PATH"] = f"{place}:{environ['PATH']}"
    return subprocess.run(
        words, cwd=night.work, env=environ, capture_output=True, timeout=TIMEOUT_S, check=False
    )


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_step_is_replayed_to_the_byte_with_its_code(night: Night) -> None:
    done = script(
        night,
        "outlast step s -- sh -c 'echo x >> $W/ran; printf \"a\\\\000b\"; echo no >&2; exit 3' > $W/out-$(ls $W | grep -c out-) 2> $W/err; echo $? >> $W/codes\n"
        + FAILS_ONCE,
    )
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x"]
    assert lines(night.folder / "codes") == ["3", "3"]
    assert [path.read_bytes() for path in sorted(night.folder.glob("out-*"))] == [b"a\0b", b"a\0b"]
    assert lines(night.folder / "err") == ["no"]


def test_a_step_that_was_killed_has_no_result_and_runs_again(night: Night) -> None:
    done = script(
        night,
        "outlast step s -- sh -c 'echo x >> $W/ran; [ -e $W/second ] || { touch $W/second; kill -9 $$; }'\n"
        + FAILS_ONCE,
    )
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x", "x"]


def test_a_failed_step_runs_again_where_that_was_asked_for(night: Night) -> None:
    done = script(
        night,
        "outlast step s --retry-failed -- sh -c 'echo x >> $W/ran; [ -e $W/failed2 ] || { touch $W/failed2; exit 1; }'\n"
        + FAILS_ONCE,
    )
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x", "x"]


def test_each_call_of_a_name_is_a_step_of_its_own(night: Night) -> None:
    done = script(
        night,
        'for n in 1 2 3; do outlast step s -- sh -c "echo $n >> $W/ran; echo $n"; done > $W/out\n'
        + FAILS_ONCE,
    )
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["1", "2", "3"]
    assert lines(night.folder / "out") == ["1", "2", "3"]


def test_steps_at_once_are_recorded_each(night: Night) -> None:
    done = script(
        night,
        'for n in 1 2 3 4; do outlast step "s$n" -- sh -c "echo $n >> $W/ran" & done; wait\n' + FAILS_ONCE,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(lines(night.folder / "ran")) == ["1", "2", "3", "4"]


def test_an_effect_is_done_once_also_when_beats_went_by(night: Night) -> None:
    done = script(
        night,
        "outlast effect e -- sh -c 'echo $OUTLAST_KEY >> $W/witness; echo done'\noutlast step s -- true\n"
        + FAILS_ONCE
        + "outlast effect e -- sh -c 'echo second >> $W/witness'\n",
    )
    assert done.returncode == 0, done.stderr
    first, second = lines(night.folder / "witness")
    assert first.startswith("ol1_")
    assert second == "second"
    assert done.stdout == b"done\ndone\n"


def test_an_effect_with_other_words_is_refused_and_not_done(night: Night) -> None:
    done = script(
        night,
        'outlast effect e -- sh -c "echo $(ls $W | grep -c failed) >> $W/witness"; echo $? >> $W/codes\n[ -e $W/failed ] || { touch $W/failed; kill -9 $$; }\n',
    )
    assert lines(night.folder / "codes") == ["0", "125"]
    assert lines(night.folder / "witness") == ["0"]
    assert b"other arguments" in done.stderr


@pytest.mark.parametrize(
    ("answer", "witness", "code"),
    [(0, 1, 0), (1, 2, 0), (7, 1, 3)],
    ids=["happened", "did not", "cannot tell"],
)
def test_killed_in_an_effect_the_probe_decides(night: Night, answer: int, witness: int, code: int) -> None:
    act = "echo x >> $W/witness; [ -e $W/killed ] || { touch $W/killed; kill -9 $PPID; }"
    done = script(night, f"outlast effect e --probe 'exit {answer}' -- sh -c '{act}'\n")
    assert done.returncode == code, done.stderr
    assert len(lines(night.folder / "witness")) == witness


def test_without_a_probe_it_is_in_doubt_and_never_repeated_unasked(night: Night) -> None:
    text = "outlast effect e -- sh -c 'echo x >> $W/witness; kill -9 $PPID'\noutlast step after -- true\n"
    assert script(night, text).returncode == 3
    assert script(night, text).returncode == 3
    assert lines(night.folder / "witness") == ["x"]
    assert night.ask("show", "t")["status"] == "in_doubt"
    [doubt] = [effect for effect in night.ask("effects", "t") if effect["state"] == "in_doubt"]
    settle = outlast("settle", "t", doubt["id"], "--happened")
    subprocess.run(
        settle, cwd=night.work, env=night.environ(), check=True, capture_output=True, timeout=TIMEOUT_S
    )
    assert script(night, text).returncode == 0
    assert lines(night.folder / "witness") == ["x"]


def test_a_failing_command_leaves_its_effect_in_doubt_and_gives_its_code(night: Night) -> None:
    done = script(night, "outlast effect e -- sh -c 'echo x >> $W/witness; exit 9'; echo $? >> $W/codes\n")
    assert done.returncode == 3
    assert lines(night.folder / "codes") == ["9"]


def test_a_program_that_cannot_be_started_did_not_happen(night: Night) -> None:
    script(night, "outlast effect e -- no-such-program; echo $? >> $W/codes\n", "--restarts", "1")
    assert lines(night.folder / "codes")[0] in ("125", "127")
    assert [effect["state"] for effect in night.ask("effects", "t")] == ["failed"]


def test_reissue_repeats_under_the_same_key_and_give_up_goes_on(night: Night) -> None:
    act = "echo $OUTLAST_KEY >> $W/witness; [ -e $W/killed ] || { touch $W/killed; kill -9 $PPID; }"
    done = script(night, f"outlast effect e --unknown reissue -- sh -c '{act}'\n")
    assert done.returncode == 0, done.stderr
    first, second = lines(night.folder / "witness")
    assert first == second
    again = script(
        night, "outlast effect e --unknown give-up -- sh -c 'echo x >> $W/other; kill -9 $PPID'\n", "--again"
    )
    assert again.returncode == 0, again.stderr
    assert lines(night.folder / "other") == ["x"]


def test_stage_and_memory_are_on_record(night: Night) -> None:
    done = script(night, "outlast stage half && outlast remember notes a.txt\n")
    assert done.returncode == 0, done.stderr
    shown = night.ask("show", "t")
    assert shown["stage"] == "half"
    assert [ref["name"] for ref in shown["memory"]] == ["notes"]


@pytest.mark.parametrize("word", ["step", "effect", "stage", "remember"])
def test_outside_of_a_run_they_say_so_and_do_nothing(night: Night, word: str) -> None:
    words = {"stage": ["x"], "remember": ["x", "y"]}.get(word, ["x", "--", "touch", "ran"])
    done = subprocess.run(
        outlast(word, *words),
        cwd=night.work,
        env=night.environ(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 125
    error, hint = done.stderr.decode().splitlines()
    assert error == "error: this is not inside a run"
    assert hint.startswith("hint: ")
    assert not (night.work / "ran").exists()
