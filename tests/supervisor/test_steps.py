"""`outlast step` and `outlast effect` inside a run: recorded once, replayed to the byte, done once, or in doubt."""

import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

FAILS_ONCE = "[ -e failed ] || { touch failed; kill -9 $$; }\n"


def script(night: Night, text: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script of bash under `outlast run`, with `outlast` on its PATH."""
    (night.folder / "script.sh").write_text(text)
    words = outlast("run", "--task", "t", *more, "--", "bash", str(night.folder / "script.sh"))
    return commands.run(
        words, cwd=night.work, env=environ(night), capture_output=True, timeout=TIMEOUT_S, check=False
    )


def environ(night: Night) -> dict[str, str]:
    """The environment of a script: `outlast` on its PATH, and in $W the folder to leave notes in."""
    place = night.folder / "bin"
    place.mkdir(exist_ok=True)
    (place / "outlast").write_text(f'#!/bin/sh\nexec {" ".join(outlast())} "$@"\n')
    (place / "outlast").chmod(0o755)
    found = night.environ()
    return found | {"W": str(night.folder), "PATH": f"{place}:{found['PATH']}"}


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


@pytest.mark.sampled(2)
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
    commands.run(
        settle, cwd=night.work, env=night.environ(), check=True, capture_output=True, timeout=TIMEOUT_S
    )
    assert script(night, text).returncode == 0
    assert lines(night.folder / "witness") == ["x"]


def said(night: Night, *words: str) -> str:
    """What a command tells a person, data and advice."""
    done = commands.run(
        outlast(*words), cwd=night.work, env=night.environ(), capture_output=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    return done.stdout.decode() + done.stderr.decode()


def test_ended_with_0_and_an_effect_in_doubt_it_is_no_crash_and_says_what_to_settle(night: Night) -> None:
    done = script(night, "outlast effect e -- sh -c 'exit 9' || true\n")
    run = night.ask("show", "t")["run"]
    settle = f"outlast settle {run} 1.1 --happened` or `--did-not`"
    assert done.returncode == 3
    assert settle in done.stderr.decode()
    shown = said(night, "show", "t")
    assert "cause    in doubt: the command ended with 0 and effect 1.1 'e' is in doubt" in shown
    assert "`outlast settle t 1.1 --happened`" in shown
    assert "crash" not in shown
    assert f"outlast settle {run} 1.1" in said(night, "report")


def test_what_the_next_attempt_settles_by_itself_nobody_is_asked_to_settle(night: Night) -> None:
    text = "outlast effect e --probe 'exit 0' -- sh -c 'kill -9 $PPID'\ntouch $W/ready\nsleep 1000\n"
    script_file = night.folder / "script.sh"
    script_file.write_text(text)
    process = night.start("--task", "t", "--", "bash", str(script_file), env=environ(night))
    wait_for(lambda: (night.folder / "ready").exists() or None, what="the effect")
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    shown = said(night, "show", "t")
    assert "outlast settle" not in shown
    assert "the next attempt settles that by asking its probe\n`outlast resume t` goes on" in shown
    assert "1.1 e; the next attempt settles it" in said(night, "report")


def test_a_cancelled_command_says_how_it_is_started_anew_on_the_command_line(night: Night) -> None:
    script(night, "exit 1\n", "--restarts", "1")
    said(night, "cancel", "t")
    hint = said(night, "resume", "t").splitlines()[-1]
    assert hint == "hint: `outlast run --task t --again -- CMD` starts a new run of the task"


def test_a_failing_command_leaves_its_effect_in_doubt_and_gives_its_code(night: Night) -> None:
    done = script(night, "outlast effect e -- sh -c 'echo x >> $W/witness; exit 9'; echo $? >> $W/codes\n")
    assert done.returncode == 3
    assert lines(night.folder / "codes") == ["9"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("word", ["step", "effect"])
@pytest.mark.parametrize(("program", "code"), [("no-such-program", "127"), ("./a.txt", "126")])
def test_a_program_that_is_not_there_is_one_line_with_the_code_of_a_shell_and_no_record(
    night: Night, word: str, program: str, code: str
) -> None:
    script(night, f"outlast {word} e -- {program} 2> $W/err; echo $? > $W/code; exit 1\n", "--restarts", "1")
    assert lines(night.folder / "code") == [code]
    error, hint = lines(night.folder / "err")
    assert error.startswith("error: ")
    assert program in error
    assert hint.startswith("hint: ")
    assert night.ask("effects", "t") == []
    assert "decided" not in [entry["event"]["t"] for entry in night.ask("log", "t")]


@pytest.mark.parametrize("word", ["step", "effect"])
def test_a_program_that_came_later_is_run_then(night: Night, word: str) -> None:
    late = "[ -e failed ] && printf '#!/bin/sh\\necho x >> $W/ran\\n' > late && chmod +x late\n"
    done = script(night, f"{late}outlast {word} e -- ./late\n" + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x"]


@pytest.mark.parametrize("word", ["step", "effect"])
def test_what_is_recorded_is_replayed_also_when_its_program_is_gone(night: Night, word: str) -> None:
    made = "[ -e failed ] || { printf '#!/bin/sh\\necho said\\n' > tool; chmod +x tool; }\n"
    done = script(night, f"{made}outlast {word} e -- ./tool; rm -f tool\n" + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"said\nsaid\n"


def test_an_effect_whose_program_cannot_be_started_after_all_did_not_happen_and_is_tried_again(
    night: Night,
) -> None:
    made = "[ -e failed ] && printf '#!/bin/sh\\necho x >> $W/ran\\n' > tool || printf '\\0\\n' > tool; chmod +x tool\n"
    done = script(night, f"{made}outlast effect e -- ./tool; echo $? >> $W/codes\n" + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "codes") == ["126", "0"]
    assert lines(night.folder / "ran") == ["x"]


def test_an_effect_that_could_not_be_started_before_the_script_went_on_ends_as_if_its_program_were_not_there(
    night: Night,
) -> None:
    """It is on record as not done, and not tried again: the code says why, and not only that it was refused."""
    made = "printf '\\0\\n' > tool; chmod +x tool\n"
    call = "outlast effect e -- ./tool; echo $? >> $W/codes\noutlast step b -- true\n"
    done = script(night, f"{made}{call}" + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "codes") == ["126", "127"]


def test_a_shell_that_ends_with_127_may_have_done_something(night: Night) -> None:
    done = script(night, "outlast effect e -- sh -c 'echo x >> $W/witness; no-such-program'\n")
    assert done.returncode == 3
    assert lines(night.folder / "witness") == ["x"]
    assert [effect["state"] for effect in night.ask("effects", "t")] == ["in_doubt"]


NOTHING = {
    "step": ["step", "", "--", "true"],
    "blank step": ["step", " ", "--", "true"],
    "effect": ["effect", "", "--", "true"],
    "key": ["effect", "e", "--key", "", "--", "true"],
    "probe": ["effect", "e", "--probe", " ", "--", "true"],
    "memory ref": ["remember", "", "a.txt"],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", NOTHING)
def test_an_empty_name_is_one_line_and_exit_code_2(night: Night, what: str) -> None:
    words = shlex.join(["outlast", *NOTHING[what]])
    script(night, f"{words} 2> $W/err; echo $? > $W/code\n")
    assert lines(night.folder / "code") == ["2"]
    error, hint = lines(night.folder / "err")
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("word", ["step", "effect"])
def test_a_grandchild_that_holds_the_output_is_not_waited_for(night: Night, word: str) -> None:
    night.timing = "supervisor.left_open_s=0.3"
    server = (
        "setsid sleep 1000" if word == "step" else "env -u OUTLAST_CALL setsid sleep 1000"
    )  # one that is to stay
    act = f"echo said; {server} & echo $! >> $W/pids"
    text = f"outlast {word} s -- sh -c '{act}'; echo $? >> $W/codes\n"
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "codes") == ["0", "0"]
    assert done.stdout == b"said\nsaid\n"
    assert len(lines(night.folder / "pids")) == 1


def test_a_grandchild_that_prints_for_ever_is_not_waited_for_and_all_of_the_command_is_recorded(
    night: Night,
) -> None:
    night.timing = "supervisor.left_open_s=0.3"
    act = "head -c 200000 /dev/zero; yes >&2 & echo $! >> $W/pids; printf end"
    text = f"outlast step s -- sh -c '{act}' > $W/out-$(ls $W | grep -c out-) 2> /dev/null\n"
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    first, second = [path.read_bytes() for path in sorted(night.folder.glob("out-*"))]
    assert first == second == b"\0" * 200_000 + b"end"


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


def test_a_memory_ref_brings_the_names_of_the_script_and_the_state_file_has_both_at_once(
    night: Night,
) -> None:
    body = "export CURRENT_TASK_ID=7; outlast remember notes a.txt; cp $STATE ../seen.json\n"
    run_file = 'STATE=$(dirname "$OUTLAST_BUDGET_FILE")/active_state.json\n'
    done = script(night, run_file + body)
    assert done.returncode == 0, done.stderr
    seen = json.loads((night.folder / "seen.json").read_text())
    assert (seen["task_id"], [ref["name"] for ref in seen["memory_refs"]]) == ("7", ["notes"])


@pytest.mark.parametrize("word", ["step", "effect", "stage", "remember"])
def test_outside_of_a_run_they_say_so_and_do_nothing(night: Night, word: str) -> None:
    words = {"stage": ["x"], "remember": ["x", "y"]}.get(word, ["x", "--", "touch", "ran"])
    done = commands.run(
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
