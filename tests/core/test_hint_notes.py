"""A hint is a note on its error: a traceback shows it once, and the command line does not show it twice."""

import copy
import subprocess
import sys
import traceback

import pytest

import outlast
from outlast import errors
from tests.support.environment import TIMEOUT_S, Isolated

HINTED = "hint: `outlast ls --all` lists all runs"


def test_the_traceback_of_an_uncaught_error_ends_with_its_hint(state: Isolated) -> None:
    program = "import outlast\nraise outlast.UnknownRun('1411')\n"
    done = subprocess.run(
        [sys.executable, "-c", program], env=state.environ(), capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-2:] == ["outlast.errors.UnknownRun: no such run: 1411", HINTED]


@pytest.mark.parametrize("options", [(), ("--debug",)])
def test_the_command_line_shows_a_hint_once(options: tuple[str, ...], state: Isolated) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outlast", *options, "show", "1411"],
        env=state.environ(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("hint:") == 1


def test_the_message_is_without_the_hint() -> None:
    error = outlast.UsageError("no such thing", hint="type another")
    assert (str(error), error.args, error.hint) == ("no such thing", ("no such thing",), "type another")
    assert error.__notes__ == ["hint: type another"]


def test_an_error_without_a_hint_has_no_note() -> None:
    assert not hasattr(outlast.DidNotHappen(), "__notes__")


def test_a_changed_hint_changes_the_note_and_no_other() -> None:
    error = errors.UnknownRun("x")
    error.add_note("something else")
    error.hint += "; give more of its id"
    assert error.__notes__ == ["something else", f"{HINTED}; give more of its id"]
    error.hint = ""
    assert error.__notes__ == ["something else"]


def test_a_copied_or_unpickled_error_has_its_hint_and_one_note() -> None:
    error = outlast.QuotaReached()
    maker, arguments, rest = error.__reduce__()  # what pickle calls, and in this order
    again = maker(*arguments)
    again.__setstate__(rest)
    for one in (copy.copy(error), again):
        assert (str(one), one.hint) == (str(error), error.hint)
        assert one.__notes__ == [f"hint: {error.hint}"]
    changed = copy.copy(error)
    changed.hint = "another"
    assert error.__notes__ == [f"hint: {error.hint}"]
    assert "hint: another" in "".join(traceback.format_exception(changed))
