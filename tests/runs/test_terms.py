"""What `outlast.run` is given and cannot use is refused at once, in words, before there is a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import Run
from outlast.runs.run import run_engine

Start = Callable[..., Run]

BAD: list[tuple[str, Any]] = [
    ("goal", 3), ("goal", b"text"), ("goal", ["a"]), ("goal", "half \udcff"),
    ("done", 5), ("done", [1]), ("done", [None]), ("done", b"true"), ("done", {"true": 1}), ("done", {"true"}),
    ("done", [""]), ("done", ["a\0b"]), ("done", ["\udcff"]), ("done", object()),
    ("invariants", 5), ("invariants", [["true"]]),
    ("project", 3), ("project", Path("app")), ("project", "x" * 5_000),
    ("store", 3), ("store", b"/tmp/x"), ("store", "a\0b"), ("store", ["x"]),
    ("workspace", 3), ("workspace", b"/tmp"), ("workspace", "a\0b"),
    ("budget", object()), ("budget", 1.5), ("budget", True), ("budget", "9" * 5_000), ("budget", "1." + "0" * 5_000),
    ("budget", b"5"), ("budget", outlast.Allowance(tokens=-1)), ("budget", outlast.Allowance(beats=0)),
    ("budget", outlast.Allowance(tokens="x")), ("budget", outlast.Allowance(cost_microusd=True)),  # type: ignore[arg-type]
]  # fmt: skip


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(outlast.UsageError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda given: repr(given).partition(" at ")[0][:30])
def test_a_term_that_makes_no_sense_is_refused_in_words(
    start: Start, store: Path, name: str, value: object
) -> None:
    said = refused(lambda: start(**{name: value}))
    assert name in said or name == "project"
    assert not store.exists()


@pytest.mark.parametrize(
    "task", [None, True, 3.5, b"x", ["x"], object(), "", " ", "a\nb", "\udcff", "x" * 201]
)
def test_what_is_no_name_for_a_task_is_refused(start: Start, store: Path, task: Any) -> None:
    assert "a task needs a short, printable name" in refused(lambda: start(task))
    assert not store.exists()


def test_a_child_is_refused_in_the_same_words(start: Start) -> None:
    with start() as run:
        for beat in run.beats():
            assert "goal= takes a text" in refused(lambda: beat.run("part", goal=3))  # type: ignore[arg-type]  # noqa: B023
            assert "done= takes shell commands" in refused(lambda: beat.run("part", done=[1]))  # noqa: B023
            beat.finish()
            beat.done()
    assert run.is_done


def test_a_store_in_nobodys_home_is_refused(start: Start) -> None:
    with pytest.raises(outlast.StoreRefused, match="no home folder"), start(store="~nobody-here/store"):
        pass


@pytest.mark.parametrize("task", ["1411", 1411])
def test_a_task_may_be_a_number(start: Start, task: Any) -> None:
    with start(task, done=("true",), invariants="true", budget={"tokens": 5}, goal="") as run:
        run.finish()
    assert (run.is_done, run.task) == (True, "1411")


def test_one_store_is_opened_once_however_it_is_written(start: Start, store: Path) -> None:
    with start("one") as one, start("two", store=f"sqlite://{store}/outlast.db") as two:
        assert run_engine(one).journal.store is run_engine(two).journal.store


@pytest.mark.parametrize(
    "wrong",
    [
        lambda beat: beat.act(3, print),
        lambda beat: beat.act("a", 3),
        lambda beat: beat.act("a", print, key=3),
        lambda beat: beat.act("a", print, probe=3),
        lambda beat: beat.decide(3, print),
        lambda beat: beat.decide("d", 3),
        lambda beat: beat.remember(3, 4),
        lambda beat: beat.remember("n", 4),
        lambda beat: beat.stage(3),
    ],
)
def test_wrong_kinds_inside_a_beat_are_named_and_the_beat_goes_on(
    tmp_path: Path, wrong: Callable[[Any], object]
) -> None:
    with outlast.run("t", store=tmp_path / "s", goal="g") as run:
        beat = next(iter(run.beats()))
        with pytest.raises(outlast.UsageError) as raised:
            wrong(beat)
        assert raised.value.hint
        beat.done("fine")
        assert run_engine(run).state.recent[-1].text == '"fine"'


@pytest.mark.parametrize("limit", [0, -1, 199, "x", 1e9])
def test_a_context_has_a_sensible_limit(tmp_path: Path, limit: Any) -> None:
    with outlast.run("t", store=tmp_path / "s", goal="g") as run:
        with pytest.raises(outlast.UsageError, match="tokens_max must be at least"):
            run.context(tokens_max=limit)
        assert run.context(tokens_max=200)
