"""What the heartbeat keeps: each lease by its own length; and what it notices: that the store is gone."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import outlast
from outlast import Run
from outlast.chaos.witness.client import Witness
from outlast.runs.run import run_engine
from outlast.store import open_store
from outlast.store.locks import boottime_s
from outlast.store.timing import Timing
from tests.support.inprocess import reading
from tests.support.processes import wait_for

Start = Callable[..., Run]
SHORT_S, LONG_S = 1, 30


@pytest.fixture
def leased(start: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Run]:
    """A run whose lease has a length of its own."""

    def opened(task: str, lease_s: int) -> Run:
        monkeypatch.setenv("OUTLAST_LEASE_S", str(lease_s))
        monkeypatch.setenv("OUTLAST_TIMING", "store.wakeup_grace_s=0.1")
        return start(task)

    return opened


# -- leases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(LONG_S, SHORT_S), (SHORT_S, LONG_S)], ids=["long first", "short first"])
def test_leases_of_different_lengths_are_each_kept_alive_and_none_is_shortened(
    leased: Callable[[str, int], Run], store: Path, lengths: tuple[int, int]
) -> None:
    with leased("first", lengths[0]) as first, leased("second", lengths[1]) as second:
        runs = dict(zip(lengths, (first, second), strict=True))
        past = boottime_s() + 2 * SHORT_S + Timing.current().wakeup_grace_s
        wait_for(lambda: boottime_s() > past, what="the short lease to pass if nobody keeps it")
        with reading(store) as other:
            with pytest.raises(outlast.RunHeld):
                other.claim(runs[SHORT_S].id)
            assert other._leases.holder(runs[LONG_S].id)[1] > boottime_s() + LONG_S / 2
        for run in (first, second):
            run.finish()
    assert first.is_done
    assert second.is_done


# -- the store -----------------------------------------------------------------------------------------------------


def delete(store: Path) -> None:
    shutil.rmtree(store)


def move_away(store: Path) -> None:
    store.rename(store.with_name("elsewhere"))


def put_another_in_its_place(store: Path) -> None:
    delete(store)
    open_store(store).close()


LOSSES = pytest.mark.parametrize("lose", [delete, move_away, put_another_in_its_place])


@LOSSES
def test_a_store_that_is_gone_is_noticed_and_nothing_more_is_written_or_performed(
    leased: Callable[[str, int], Run], store: Path, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with Witness.start(tmp_path / "witness.log") as witness:

        def mail(to: str, idempotency_key: str) -> object:
            return witness.act("keyed", "mail", to, idempotency_key, identity=to)

        with pytest.raises(outlast.StoreGone, match="deleted or replaced") as raised, leased("t", 1) as run:
            for beat in run.beats():
                beat.act("mail", mail, "before")
                lose(store)
                wait_for(lambda: not run_engine(run).journal.store.usable, what="the heartbeat to notice")
                with pytest.raises(outlast.StoreGone):
                    beat.decide("small", int)
                with pytest.raises(outlast.StoreGone):
                    beat.decide("large", lambda: "x" * 9_000)
                for _ in range(2):  # its key would let it be reissued
                    with pytest.raises(outlast.StoreGone):
                        beat.act("mail", mail, "after")
                beat.act("mail", mail, "after")
        assert raised.value.hint
        assert [item.identity for item in witness.performances()] == ["before"]
    assert not store.exists() or lose is put_another_in_its_place


@LOSSES
def test_a_run_is_not_claimed_in_a_store_that_is_gone(
    leased: Callable[[str, int], Run], store: Path, lose: Callable[[Path], None]
) -> None:
    with pytest.raises(outlast.StoreGone), leased("t", LONG_S) as run:
        for beat in run.beats():
            beat.done()
            lose(store)
            with pytest.raises(outlast.StoreGone), leased("other", LONG_S):
                pass
