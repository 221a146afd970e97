"""The buttons of a store as a test presses them, and runs to press them for."""

from collections.abc import Callable
from typing import Any

import pytest

from outlast import Run
from outlast.dashboard.actions import perform
from outlast.dashboard.documents import ActName, Done, Foreseen, Wish
from outlast.inspect import find
from outlast.store.protocol import RunFilter, Store, Summary
from tests.support.inprocess import attempt
from tests.support.processes import wait_for

BY = "alice via ui"


KEY = "sk-ant-api03-" + "a1B2" * 24


class Dashboard:
    """A store, and acts on its newest run of a task."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def summary(self, of: str = "t") -> Summary:
        return self.store.list(RunFilter(task=of))[0]

    def status(self, of: str = "t") -> str:
        summary = self.summary(of)
        return find.shown_status(self.store, summary.state, summary.root)

    def comes_to(self, status: str, of: str = "t") -> None:
        wait_for(lambda: self.status(of) == status or None, what=f"{of} to be {status}")

    def wish(self, act: ActName, of: str = "t", **fields: Any) -> Wish:
        return Wish(act=act, run=self.summary(of).run, **fields)

    def foresee(self, act: ActName, of: str = "t", **fields: Any) -> Foreseen:
        """What would happen; nothing does, which is looked at."""
        before = [self.summary(of), self.store.inbox.pending(self.summary(of).run)]
        foreseen = perform.foresee(self.store, self.wish(act, of, **fields))
        assert [self.summary(of), self.store.inbox.pending(self.summary(of).run)] == before
        for text in (foreseen.title, *foreseen.says, foreseen.command, foreseen.refused, foreseen.hint):
            assert text.isprintable()
        return foreseen

    def do(self, act: ActName, of: str = "t", **fields: Any) -> Done:
        return perform.do(self.store, self.wish(act, of, **fields), BY)

    def refused(self, act: ActName, of: str = "t", **fields: Any) -> tuple[str, str]:
        """Said beforehand, and not done: one line each, with a hint, and nothing changed."""
        before = self.summary(of)
        foreseen, done = self.foresee(act, of, **fields), self.do(act, of, **fields)
        assert self.summary(of) == before
        assert (done.ok, done.changed, done.by) == (False, False, BY)
        assert foreseen.refused == done.says
        for text in (done.says, done.hint, foreseen.hint):
            assert text
            assert text.isprintable()
            assert len(text) < 700
        return done.says, done.hint

    def events(self, tag: str, run: str = "") -> list[Any]:
        run = run or self.summary().run
        return [item.event for item in self.store.read(run, after=0, tags=(tag,)).events]

    def asked(self, run: str = "") -> list[tuple[str, str]]:
        """What was asked of a run, and by whom."""
        return [(event.what, event.by) for event in self.events("requested", run)]

    def attempts(self) -> int:
        return self.summary().state.attempts


def beats(run: Run, count: int = 2) -> None:
    """A run of `count` beats that is cut off in the next one."""
    for beat in run.beats():
        if beat.number > count:
            raise RuntimeError("the agent broke down")
        beat.act("post", dict)
        beat.done("x")


def interrupted(start: Callable[..., Run], **terms: Any) -> None:
    with pytest.raises(RuntimeError, match="broke down"):
        attempt(start(**terms), beats)
