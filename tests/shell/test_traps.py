"""Signals to the script's pid alone are acted upon at once, and the script's own traps are kept."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core import events as ev
from tests.shell.project import Project, project
from tests.support.environment import TIMEOUT_S
from tests.support.processes import alive

# Each with each shell, or each way to look for changes: a sample does some of both.
pytestmark = [pytest.mark.sampled(0.4), pytest.mark.sampled(0.5, of="file")]

ACT_S = 5.0  # on a busy machine; less than any grace that is waited out
HELD = "outlast step long -- sh -c 'echo $$ > ../pid.tmp; mv ../pid.tmp ../pid; exec sleep 600'\n"
WORK = "outlast step a -- sh -c 'echo a >> ../did'\n"
BARE = 'eval "$(outlast shell-init)"\n'


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_signal_to_the_script_alone_ends_it_at_once(work: Project, name: str) -> None:
    work.script("export ISSUE_NUMBER=7\necho new > file\n" + HELD)
    script = work.start_script()
    command = int(work.saw("pid").read_text())
    number = signal.Signals[f"SIG{name}"]
    before = time.monotonic()
    os.kill(script.pid, number)
    assert script.wait(TIMEOUT_S) == 128 + number, work.said
    assert time.monotonic() - before < ACT_S
    state = work.settled()
    assert not alive(command)
    (end,) = work.ends()
    assert (end.status, end.cause, end.exit_code) == ("interrupted", "signal", 128 + number)
    assert f"SIG{name}" in end.evidence
    assert end.wanted == (name != "HUP"), "a closed terminal is nobody's wish"
    assert dict(state.names)["ISSUE_NUMBER"] == "7"
    assert work.git("show", f"{work.saves('emergency')[0]}:file") == "new\n"
    made = [event.reason for event in work.events() if isinstance(event, ev.SaveMade)]
    assert f"signal: SIG{name} to the script" in made, "saved at once"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_scripts_own_handler_runs_and_its_exit_counts(work: Project, when: str) -> None:
    """An exit with 0 in the handler of a signal does not finish the run: the rest of the script was not done."""
    trap = "trap 'echo cleaned > ../cleaned; exit 0' TERM\n"
    path = work.script((trap if when == "after" else "") + HELD)
    if when == "before":
        path.write_text(trap + path.read_text())
    script = work.start_script()
    work.saw("pid")
    os.kill(script.pid, signal.SIGTERM)
    assert script.wait(TIMEOUT_S) == 0
    assert (work.folder / "cleaned").exists()
    assert work.settled().status == "interrupted"


def test_a_handler_that_returns_lets_the_script_go_on(work: Project) -> None:
    work.script("trap 'echo heard >> ../heard' TERM\nif ! " + HELD + "then echo $? > ../code; fi\nexit 5\n")
    script = work.start_script()
    command = int(work.saw("pid").read_text())
    os.kill(script.pid, signal.SIGTERM)
    assert script.wait(TIMEOUT_S) == 5, work.said
    assert (work.folder / "heard").read_text() == "heard\n"
    assert not alive(command), "the command under way is stopped all the same"
    work.settled()
    assert work.ends()[0].cause == "signal"


def test_an_ignored_signal_is_ignored(work: Project) -> None:
    work.script("trap '' TERM\n: > ../begun\nread -r _ < ../gate\n")
    os.mkfifo(work.folder / "gate")
    script = work.start_script()
    work.saw("begun")
    os.kill(script.pid, signal.SIGTERM)
    (work.folder / "gate").write_text("go\n")
    assert script.wait(TIMEOUT_S) == 0, work.said
    assert work.settled().status == "done"


SHRUGGED = """
trap ': > ../usr' USR1
outlast step a -- sh -c '
    for _ in 1 2 3; do kill -USR1 $0; until rm ../usr; do :; done 2>/dev/null; kill -WINCH $0; done
    echo end; exit 3' $$ || echo "code $?"
"""


def test_signals_that_the_script_shrugs_off_end_no_step(work: Project) -> None:
    work.script(SHRUGGED)
    assert work.run() == 0, work.said
    assert work.said.endswith("end\ncode 3\n"), work.said


def test_the_exit_handler_sees_the_code_and_can_still_call(work: Project) -> None:
    work.script("trap 'echo \"left $?\"; outlast stage cleanup' EXIT\nfalse\n")
    assert work.run() == 1
    assert "left 1\n" in work.said
    assert work.head().stage == "cleanup"
    assert work.ends()[0].exit_code == 1


def test_trap_shows_and_restores_only_the_scripts_own_handlers(work: Project) -> None:
    path = work.script(
        "trap -p TERM > ../shown\n"
        "trap 'echo \"it is\"' TERM HUP\n"
        "trap - HUP\n"
        "old=$(trap -p TERM); trap - TERM; eval \"$old\"\n"
        "trap -p >> ../shown\n"
        "( trap 'echo sub' EXIT; trap 'echo subterm' TERM )\n"
        "trap - 15\n"
        "trap -p >> ../shown\n"
    )  # fmt: skip
    path.write_text("trap 'echo before' TERM\n" + path.read_text())
    assert work.run() == 0, work.said
    shown = (work.folder / "shown").read_text()
    assert "__outlast" not in shown, shown
    lines = [line.replace("SIGTERM", "TERM") for line in shown.splitlines()]
    assert [line.split()[-1] for line in lines] == ["TERM", "TERM"], shown
    assert lines[0] == "trap -- 'echo before' TERM"
    assert work.said == "sub\n", work.said


def test_err_traps_can_be_set_and_reset(in_bash: Project) -> None:
    in_bash.script(
        "set +e\ntrap 'echo err' ERR\nfalse\ntrap - ERR\nfalse\ntrap 'echo other' ERR\nfalse\nexit 0\n"
    )
    assert in_bash.run() == 0
    assert in_bash.said == "err\nother\n"


@pytest.mark.parametrize("name", ["USR1", "ALRM", "PIPE", "XCPU"])
def test_bash_killed_by_a_signal_has_not_come_to_its_end(in_bash: Project, name: str) -> None:
    """bash runs its EXIT trap with a code of 0 then."""
    in_bash.script(f"trap ': > ../exit' EXIT\ntrue\nkill -{name} $$\n: > ../on\n")
    assert in_bash.run() == -signal.Signals[f"SIG{name}"]
    assert not (in_bash.folder / "on").exists()
    assert in_bash.head().status == "interrupted"
    assert f"SIG{name}" in in_bash.ends()[0].evidence


def test_any_command_can_be_run_so(work: Project) -> None:
    work.script(
        "outlast_run sh -c 'exit 4' || echo \"code $?\"\noutlast_run sh -c ': > ../begun; exec sleep 600'\n"
    )
    script = work.start_script()
    work.saw("begun")
    before = time.monotonic()
    os.kill(script.pid, signal.SIGTERM)
    assert script.wait(TIMEOUT_S) == 143
    assert time.monotonic() - before < ACT_S
    assert "code 4\n" in work.said


def test_a_step_gives_its_output_and_code_also_in_substitutions_and_pipes(work: Project) -> None:
    work.script(
        "got=$(outlast step a -- echo out)\n"
        "outlast step b -- printf '1\\n2\\n' | wc -l\n"
        'if outlast step c -- sh -c "exit 9"; then :; else echo "$got $?"; fi\n'
        "outlast step d -- sh -c 'kill -TERM $$' || echo \"killed $?\"\n"
    )  # fmt: skip
    assert work.run() == 0, work.said
    assert work.said.split() == ["2", "out", "9", "killed", "143"], work.said


def test_ctrl_c_reaches_the_command_though_it_runs_in_the_background(in_bash: Project) -> None:
    """A shell starts background commands deaf for SIGINT; that must not stick to the commands of steps."""
    in_bash.script("outlast step a -- sh -c 'grep SigIgn /proc/self/status > ../mask'\n")
    assert in_bash.run() == 0, in_bash.said
    mask = int((in_bash.folder / "mask").read_text().split()[1], 16)
    assert not mask & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGQUIT - 1))


@pytest.fixture
def in_zsh(tmp_path: Path) -> Iterator[Project]:
    """A project whose scripts are run by zsh, for what only zsh has."""
    with project(tmp_path, "zsh") as made:
        yield made


def _done_twice(work: Project) -> list[str]:
    """Starts the script twice, each a run that is done and does the work; what each start said."""
    said = []
    for count in (1, 2):
        begun = len(work.said)
        assert work.run() == 0, work.said
        assert work.settled().status == "done", work.ends()
        assert len(work.runs()) == count, "the start after one that came to its end is a new run"
        assert (work.folder / "did").read_text() == "a\n" * count
        said.append(work.said[begun:])
    return said


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["EXIT", "TERM"])
def test_a_script_with_a_trap_that_comes_to_its_end_is_done(work: Project, when: str, name: str) -> None:
    trap = f"trap 'echo \"heard $?\"' {name}\n"
    path = work.script((trap if when == "after" else "") + WORK)
    if when == "before":
        path.write_text(trap + path.read_text())
    heard = "heard 0\n" if name == "EXIT" else ""
    assert _done_twice(work) == [heard, heard]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_exit_handler_sees_the_code_wherever_it_was_set(work: Project, when: str) -> None:
    trap = "trap 'echo \"heard $?\"' EXIT\n"
    path = work.script((trap if when == "after" else "") + WORK + "exit 3\n")
    if when == "before":
        path.write_text(trap + path.read_text())
    assert work.run() == 3
    assert work.said == "heard 3\n"
    (end,) = work.ends()
    assert (end.status, end.exit_code) == ("interrupted", 3)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_handler_of_a_signal_runs_once_and_sees_the_code(work: Project, when: str) -> None:
    """A shell runs it once the command in the foreground is over, whose code it then has."""
    trap = "trap 'echo \"heard $?\"' TERM\n"
    path = work.script(
        (trap if when == "after" else "")
        + "if sh -c 'kill -TERM $0; exit 3' $$; then :; else echo \"code $?\"; fi\n"
    )  # fmt: skip
    if when == "before":
        path.write_text(trap + path.read_text())
    assert work.run() == 0, work.said
    assert work.said == "heard 3\ncode 3\n"
    assert work.settled().status == "interrupted", "nobody can tell whether it was cut short"


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_trap_and_a_shell_init_within_a_function(work: Project, where: str) -> None:
    trap = "trap 'echo \"heard $?\"' EXIT\n"
    before, within, after = (trap if where == each else "" for each in ("before", "within", "after"))
    work.script("").write_text(f"{before}main() {{\n{within}{BARE}{after}{WORK}}}\nmain\n")
    assert _done_twice(work) == ["heard 0\n"] * 2


@pytest.mark.parametrize("option", ["localtraps", "posixtraps", "localoptions"])
@pytest.mark.parametrize("name", ["EXIT", "TERM"])
def test_the_options_of_zsh_about_traps_change_nothing(in_zsh: Project, option: str, name: str) -> None:
    trap = f"setopt {option}\ntrap 'echo \"heard $?\"' {name}\n"
    send = 'if [ -n "${SEND-}" ]; then kill -TERM $$; fi\n'
    path = in_zsh.script("")
    path.write_text(trap + BARE + WORK + send)
    heard = "heard 0\n" if name == "EXIT" else ""
    assert _done_twice(in_zsh) == [heard] * 2
    begun = len(in_zsh.said)
    assert in_zsh.run(SEND="1") == (143 if name == "EXIT" else 0)
    assert in_zsh.said[begun:] == ("heard 143\n" if name == "EXIT" else "heard 0\n")
    assert in_zsh.settled().status == "interrupted"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_can_be_the_exit_handler_of_zsh(in_zsh: Project, when: str) -> None:
    """Its handler writes to a file, for zsh also runs it at the end of a substitution."""
    function = 'TRAPEXIT() { echo "heard $? $1 $ZSH_SUBSHELL" >> ../heard; }\n'
    pair = function + BARE if when == "before" else BARE + function
    in_zsh.script("").write_text(pair + WORK)
    _done_twice(in_zsh)
    heard = (in_zsh.folder / "heard").read_text().splitlines()
    assert [line for line in heard if line.endswith(" 0")] == ["heard 0 0 0"] * 2, heard


def test_a_function_can_be_the_handler_of_a_signal_of_zsh(in_zsh: Project) -> None:
    function = 'TRAPTERM() { echo "heard $1"; return "${CODE-0}"; }\n'
    in_zsh.script("").write_text(function + BARE + "kill -TERM $$\necho on\n")
    assert in_zsh.run() == 0
    assert in_zsh.run(CODE="9") != 0
    assert in_zsh.said == "heard 15\non\nheard 15\n"
