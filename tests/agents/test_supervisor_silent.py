"""An agent whose supervisor does not answer reaches nothing outside; what only reads is never in the way, nor is what is local,
but for a shell call of an agent whose hooks come by HTTP: that one waits, and is denied."""

import os
import signal

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Script, Step, bash
from tests.support.processes import wait_for

STEPS = 4


def test_with_a_stopped_supervisor_nothing_reaches_outside(under: Under) -> None:
    """A local call stops the supervisor; the next two, one outward and one local, are asked about without it."""
    world = under.world
    stop = "touch stopped; while [ -e stopped ]; do :; done"
    world.model.script = Script(
        [
            Step("First.", (bash(stop),)),
            Step("Now outside.", (world.posting("comment", body="hello"),)),
            Step("Now here.", (bash("echo local > local.txt"),)),
            Step("Done."),
        ]
    )
    process = under.start(env=under.environ(OUTLAST_TIMING="agents.http_hook_s=3"))
    flag = world.work / "stopped"
    wait_for(flag.exists, what="the first call", limit_s=60)
    supervisor = under.pids(process)[1]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        flag.unlink()
        local = world.work / "local.txt"
        if (under.name, under.version) == ("claude", "2.1.325"):
            wait_for(lambda: len(world.model.requests()) >= STEPS, what="the last answer", limit_s=90)
            assert not local.exists()
        else:
            wait_for(local.exists, what="the local call", limit_s=90)
        assert world.performed() == []
    finally:
        os.kill(supervisor, signal.SIGCONT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()
    assert b"does not run its hooks" not in said
    assert [each["state"] for each in under.effects() if each["policy"] == "tell"] == ["failed"], (
        said.decode()
    )


def test_what_only_reads_is_not_in_the_way(under: Under) -> None:
    world = under.world
    url = f"{world.witness.url}/performed"
    world.model.script = Script(
        [
            Step("I look.", (bash(f"curl -sS {url} > seen.txt; echo $? >> seen.txt"),)),
            Step(
                "And fetch.",
                (bash("git clone -q --bare . ../o.git; git fetch -q ../o.git; echo $? > fetched"),),
            ),
            Step("Done."),
        ]
    )
    done = under.run()
    assert done.returncode == 0, done.stderr
    assert (world.work / "seen.txt").read_text().endswith("0\n")
    assert (world.work / "fetched").read_text() == "0\n"
    assert {each["state"] for each in under.effects()} <= {"confirmed"}
    assert all(each["policy"] == "give_up" for each in under.effects())
