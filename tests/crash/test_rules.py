"""The rules that keep a resumed run from doing harm: each is a row of the crash matrix, or the reason behind one."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlast
from outlast.core import events as ev
from outlast.store.protocol import RunFilter
from tests.crash.agent import Blow
from tests.crash.conftest import MakeWorld
from tests.crash.crash_world import CrashWorld, killed
from tests.support.inprocess import reading


@pytest.mark.parametrize(("point", "performed"), [("act.intended", 0), ("act.performed", 1)])
def test_a_blind_act_without_an_outcome_is_never_repeated_unasked(
    point: str, performed: int, world: CrashWorld
) -> None:
    assert killed(world.run(script="mail", blows=(Blow(name=point),)))
    for _ in range(3):
        assert world.run(script="mail") == 3, world.story
        assert world.noted("error")[-1][0] == "EffectInDoubt"
    assert len(world.performed()) == performed
    assert world.settle_by_the_truth() == 1
    assert world.run(script="mail") == 0, world.story
    world.check_effects(["mail-1"])


def test_killed_after_a_did_not_while_reissuing_the_effect_is_in_doubt_again_under_the_same_key(
    make_world: MakeWorld,
) -> None:
    for nth, point in ((1, "act.before_intent"), (1, "act.intended"), (1, "act.performed")):
        with make_world(point) as world:
            assert killed(world.run(script="ticket", blows=(Blow(1, "act.intended"),)))
            assert killed(world.run(script="ticket", blows=(Blow(nth, point),))), world.story
            assert "did_not" in [e.finding for e in world.events() if isinstance(e, ev.EffectSettled)]
            assert world.run(script="ticket") == 0, world.story
            world.check_effects(["ticket-1"])
            keys = {e.key for e in world.events() if isinstance(e, ev.EffectIntended)}
            assert len(keys) == 1, world.story


def test_a_probe_killed_before_its_answer_is_recorded_is_asked_again(world: CrashWorld) -> None:
    assert killed(world.run(script="ticket", blows=(Blow(1, "act.performed"),)))
    assert killed(world.run(script="ticket", blows=(Blow(1, "probe.answered"),)))
    assert world.run(script="ticket") == 0, world.story
    assert len(world.noted("look")) == 2
    world.check_effects(["ticket-1"])


def test_a_did_not_does_not_count_while_the_act_may_be_under_way(world: CrashWorld) -> None:
    """The call took too long, its thread still runs, and the world has not done it yet, when the probe looks."""
    world.witness.fault("late", match="late")
    assert world.run(script="late") == 3, world.story
    assert world.noted("error")[-1][0] == "EffectInDoubt"
    world.witness.release()
    assert world.run(script="late") == 0, world.story
    world.check_effects(["late-1"])


def test_the_same_act_with_the_same_arguments_is_another_effect_the_next_time(world: CrashWorld) -> None:
    assert killed(world.run(script="same", blows=(Blow(2, "act.performed"),)))
    world.run_to_end(script="same")
    world.check_effects(["same-1", "same-1-2", "same-2", "same-2-2"])


def test_an_act_whose_arguments_changed_is_not_performed(make_world: MakeWorld) -> None:
    """A model that is asked again words it differently: then nothing is performed and nothing is returned."""
    for point in ("act.intended", "act.confirmed"):
        with make_world(point) as world:
            assert killed(world.run(script="reworded", blows=(Blow(name=point),)))
            then = len(world.notes)
            assert world.run(script="reworded") == 2, world.story
            assert world.noted("error")[-1][0] == "ReplayMismatch"
            assert world.noted("perform", after=then) == []


def test_an_orphaned_blob_is_swept_when_it_is_old(world: CrashWorld) -> None:
    """Killed between the blob and the event that names it; asked again, the model gave another answer."""
    assert killed(world.run(script="short", blows=(Blow(1, "blob.written"),)))
    world.run_to_end(script="short")
    with world.reading() as store:
        kept = {
            payload.blob
            for event in world.events()
            for payload in (getattr(event, name, None) for name in ("value", "result", "args"))
            if isinstance(payload, ev.Payload) and payload.blob
        }
        assert store.blobs.sweep(kept, older_than_s=3600) == 0
        assert store.blobs.sweep(kept, older_than_s=-1) == 1
        for blob in kept:
            store.blobs.get(blob)


def test_another_contract_is_refused_until_it_is_amended(tmp_path: Path) -> None:
    def start(goal: str, **more: bool) -> None:
        with outlast.run("t", goal=goal, store=tmp_path, project="p", **more) as run:
            next(iter(run.beats())).done()

    start("one thing")
    with pytest.raises(outlast.ContractChanged):
        start("another thing")
    start("another thing", amend=True)
    start("another thing")


def test_a_run_whose_check_fails_is_not_done_and_checks_again(tmp_path: Path) -> None:
    def start() -> None:
        with outlast.run(
            "t", done=["test -e ok"], store=tmp_path / "s", project="p", workspace=tmp_path
        ) as run:
            run.plan(["only"])
            for beat in run.beats():
                beat.done()

    for _ in range(2):
        with pytest.raises(outlast.ChecksFailed):
            start()
        with reading(tmp_path / "s") as store:
            (summary,) = store.list(RunFilter())
            assert (summary.state.status, summary.state.cause) == ("interrupted", "checks")
    (tmp_path / "ok").touch()
    start()
    with reading(tmp_path / "s") as store:
        (summary,) = store.list(RunFilter())
        assert (summary.state.status, summary.state.beats) == ("done", 1)
