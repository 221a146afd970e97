"""Runs inside this process: killed at a crash point without any clean-up, read back, and asked from outside.

A death is simulated: an exception that nobody catches unwinds the stack, and then only what the kernel would do is
done: descriptors are closed, locks fall, open transactions vanish. Nothing of outlast's own endings runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import outlast
from outlast import Run, faults
from outlast.core import events as ev, state as st
from outlast.runs import inbox, reader
from outlast.runs.engine.beat import open_beat
from outlast.runs.engine.run import RunEngine
from outlast.runs.engine.steps import Append
from outlast.runs.journal import Journal
from outlast.runs.run import run_engine
from outlast.store import open_store
from outlast.store.protocol import RunFilter, Store


class Killed(BaseException):
    """SIGKILL, as far as one process can do it to itself."""


def die(name: str) -> None:
    raise Killed(name)


@contextlib.contextmanager
def armed(hook: Callable[[str], None]) -> Iterator[None]:
    """Call the hook at every crash point inside the block."""
    faults.arm(hook)
    try:
        yield
    finally:
        faults.arm(None)


def at_point(point: str, nth: int = 1, act: Callable[[str], None] = die) -> Callable[[str], None]:
    """A hook that acts at the n-th time this very crash point is met."""
    met = 0

    def hook(name: str) -> None:
        nonlocal met
        met += name == point
        if name == point and met == nth:
            act(name)

    return hook


def abandon(run: Run | RunEngine) -> None:
    """What the kernel does for a killed process: descriptors closed, locks free. Nothing is written."""
    open_beat.set(None)
    engine = run if isinstance(run, RunEngine) else run_engine(run)
    while engine.parent is not None:
        engine = engine.parent[0]
    engine.closed = True
    claim, engine.claim = engine.claim, None
    if claim is not None:
        claim.give_back()  # closes the lock and writes nothing


def attempt(run: Run, body: Callable[[Run], Any], hook: Callable[[str], None] | None = None) -> bool:
    """One attempt: True when it left its block by itself, False when it was killed. Errors come through."""
    try:
        with armed(hook) if hook else contextlib.nullcontext(), run:
            try:
                body(run)
            except Killed:
                abandon(run)
                raise
    except Killed:
        abandon(run)
        return False
    return True


def journal_of(store: Path | str, task: str = "t", run: str = "") -> list[ev.AnyEvent]:
    """All events of the newest run of a task, as a second reader sees them."""
    with reading(store) as opened:
        run = run or newest(opened, task)
        found = opened.read(run, after=0).events
        while page := opened.read(run, after=found[-1].seq if found else 0).events:
            found += page
        return [item.event for item in found]


def head_of(store: Path | str, task: str = "t", run: str = "") -> st.RunState:
    """The folded head as a second reader sees it."""
    with reading(store) as opened:
        return reader.head(opened, run or newest(opened, task))


def newest(store: Store, task: str) -> str:
    return store.list(RunFilter(task=task))[0].run


def tags(store: Path | str, task: str = "t") -> list[str]:
    """The tags of a run's journal, in order."""
    return [ev.tag_of(event) for event in journal_of(store, task)]


@contextlib.contextmanager
def reading(store: Path | str) -> Iterator[Store]:
    """A second view of a store, closed again."""
    opened = open_store(store)
    try:
        yield opened
    finally:
        opened.close()


def ask(store: Path | str, what: str, *, task: str = "t", by: str = "ada", **args: Any) -> int:
    """Put a request into a run's inbox, as a command does while the run has a live holder."""
    given = msgspec.json.encode(args) if args else b"null"
    with reading(store) as opened:
        return opened.inbox.put(newest(opened, task), by=by, what=what, args=given)


def command(store: Path | str, what: str, *, task: str = "t", by: str = "ada", **args: Any) -> None:
    """What a command does with no live holder: claim, apply, release."""
    with reading(store) as opened:
        run = newest(opened, task)
        lease = opened.claim(run)
        journal = Journal(opened, lease, reader.head(opened, run))
        journal.load_open_beat("")
        opened.inbox.put(run, by=by, what=what, args=msgspec.json.encode(args) if args else b"null")
        for request in opened.inbox.pending(run):
            events = (inbox.requested(request, journal), *inbox.effect_of(request, journal))
            opened.append(journal.batch(Append(events, takes=(request.id,))))
        opened.release(lease)


def starter(store: Path) -> Callable[..., Run]:
    """`outlast.run` with a store and a project of the test's own."""

    def start(task: str = "t", **terms: Any) -> Run:
        return outlast.run(task, **{"store": store, "project": "p", **terms})

    return start
