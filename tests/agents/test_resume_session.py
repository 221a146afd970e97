"""Killed in any state, an agent goes on in its session, and its model is told the truth about every call."""

import signal
from pathlib import Path

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import History, Script, Step, bash
from tests.support.processes import wait_for


def seen(history: History) -> str:
    """Everything the model was told: by people, and as results of its calls."""
    return "\n".join([*(turn.text for turn in history.turns), *(result.text for result in history.results)])


def killed_in_second_call(under: Under, how: str = "all") -> None:
    """The first call ended well, the second was cut off."""
    world = under.world
    world.model.script = Script(
        [
            Step("One.", (bash("printf 'first-%s' result"),)),
            Step("Two.", (bash("[ -e begun.txt ] || { echo begun > begun.txt; sleep 300; }"),)),
            Step("Three."),
            Step("Three."),
        ]
    )
    process = under.start()
    wait_for((world.work / "begun.txt").exists, what="the second call", limit_s=60)
    if under.name != "opencode":
        wait_for(lambda: under.kept("first-result"), what="our copy of the first result", limit_s=30)
    if how == "all":
        under.kill_all(process)
    else:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM


def transcript(under: Under) -> Path:
    session = under.shown()["session"]
    path = Path(session["path"]) if session and session["path"] else None
    if path is None or not path.exists():
        pytest.skip(f"{under.name} has no transcript of its own that is a file")
    return path


def said_on_return(under: Under) -> str:
    """What the agent's model is told when it is started again, everything; the run ends well."""
    before = len(under.world.model.requests())
    done = under.run()
    assert done.returncode == 0, done.stderr
    return seen(under.world.model.requests()[before].history)


@pytest.mark.parametrize("how", ["all", "term"])
def test_the_session_goes_on_and_the_model_sees_what_was_done_and_what_was_cut_off(
    under: Under, how: str
) -> None:
    killed_in_second_call(under, how)
    said = said_on_return(under)
    assert "first-result" in said
    # Stopped with time to speak, some agents say truly themselves how their command ended.
    ends = (
        ["was cut off"]
        if how == "all"
        else ["was cut off", "Exit code 137", "Exit code 144", "Session closed"]
    )
    assert any(end in said for end in ends)
    assert "tool use was rejected" not in said, "nobody rejected it"
    assert under.shown()["beats"] >= (2 if under.name == "opencode" else 3)
    assert (under.world.work / "begun.txt").read_text() == "begun\n"


def test_a_torn_transcript_is_made_whole(under: Under) -> None:
    """The last line is cut in half, as a power cut leaves it."""
    killed_in_second_call(under)
    path = transcript(under)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - len(data.splitlines()[-1]) // 2 - 1])
    said = said_on_return(under)
    assert "first-result" in said
    assert "was cut off" in said


def test_a_lost_transcript_is_rebuilt_from_our_copy(under: Under) -> None:
    killed_in_second_call(under)
    path = transcript(under)
    path.unlink()
    assert "first-result" in said_on_return(under)
