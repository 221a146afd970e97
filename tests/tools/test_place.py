"""The place that tests of commands share leaves nothing behind, and takes nothing that is not its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import Isolated, isolate
from tests.support.place import Place
from tests.support.processes import alive, wait_for

# A child in a session of its own, whose parent is gone: in no group and below nobody that the place has started.
ORPHAN = "setsid sh -c 'echo $$ > orphan.pid; exec sleep 1000' & exit 0"
# One that is below it and has thrown its variables away.
NAMELESS = "setsid env -i sh -c 'echo $$ > nameless.pid; exec sleep 1000' & wait"


def started_in(place: Place, script: str, name: str) -> int:
    """The pid that a script has written down."""
    place.begin(["sh", "-c", script])
    path = place.work / f"{name}.pid"
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), what=name))


@pytest.mark.parametrize(
    ("script", "name"), [(ORPHAN, "orphan"), (NAMELESS, "nameless")], ids=["orphan", "nameless"]
)
def test_a_place_leaves_no_process(tmp_path: Path, script: str, name: str) -> None:
    with Place(tmp_path, isolate(tmp_path)) as place:
        place.repository()
        pid = started_in(place, script, name)
        assert pid in place.processes()
    assert not alive(pid)


def test_a_place_leaves_no_process_of_a_test_that_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Place(tmp_path, isolate(tmp_path)) as place:
        place.repository()
        pid = started_in(place, ORPHAN, "orphan")
        _ = 1 / 0
    assert not alive(pid)


def test_a_place_spares_what_the_test_itself_started_in_the_same_home(
    tmp_path: Path, state: Isolated
) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with Place(tmp_path, state) as place:
            place.repository()
            pid = started_in(place, ORPHAN, "orphan")
            assert other.pid not in place.processes()
        assert (alive(other.pid), alive(pid)) == (True, False)
    finally:
        other.communicate()


def test_the_witness_ends_with_its_place(tmp_path: Path) -> None:
    with Place(tmp_path, isolate(tmp_path)) as place:
        place.witness.act("blind", "post", {})
        assert [act.name for act in place.performed()] == ["post"]
        pid = place.witness.pid
    assert not alive(pid)


def test_a_place_that_cannot_be_made_leaves_no_process(tmp_path: Path) -> None:
    class Unmade(Place):
        def make(self) -> None:
            self.repository()
            self.left = started_in(self, ORPHAN, "orphan")
            raise OSError("no room")

    place = Unmade(tmp_path, isolate(tmp_path))
    with pytest.raises(OSError, match="no room"), place:
        pass
    assert not alive(place.left)
