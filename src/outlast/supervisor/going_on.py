"""Going on with a run because a person asks for it: what is checked, what is written, and the process that does it."""

import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast.core.state import RunState
from outlast.core.values import Allowance
from outlast.errors import RunRefused, UsageError
from outlast.runs import acts, find
from outlast.runs.acts import Outcome
from outlast.runs.terms import not_a_folder, only_adds, topped
from outlast.runs.terms import raised as raised_to
from outlast.store.protocol import Summary
from outlast.store.sqlite import SqliteStore
from outlast.supervisor import (
    by_hand,
    detaching,
    guarding,
    launching,
    paying,
    starting,
    walls,
    watchers,
)
from outlast.supervisor.attempt import known_agent
from outlast.supervisor.launching import Launch
from outlast.workspace import recreating
from outlast.workspace.reading import place_of
from outlast.workspace.seam import raw


def launch_of(store: SqliteStore, summary: Summary) -> Launch | None:
    """How the run was last started; None for a program of somebody's own, which is theirs to start."""
    return starting.launch_of(store, summary) if summary.state.supervised else None


def raised(
    store: SqliteStore,
    summary: Summary,
    given: Sequence[str],
    until: str | None,
    say: Callable[[str], None],
) -> Allowance | None:
    """The budget that it goes on with, where another is asked for. Raises UsageError for one that makes no sense."""
    if not given and until is None:
        return None
    root = acts.standing(store, acts.root_of(store, summary.run).run)
    head, before = root.state, root.state.budget
    acts.allow(head, find.shown_status(store, head, head.run), "resume")
    budget = raised_to(head, given, until)
    launch = launch_of(store, summary)
    if launch is not None:
        refuse_homeless(store, root, launch)
    if launch is not None and (before is None or before.cost_microusd is None):
        variables, _ = launching.environment_of(launch, starting.inherited())
        paying.check(budget, known_agent(launch), launch, variables, say)
    return budget


def allow_again(
    store: SqliteStore,
    summary: Summary,
    given: Sequence[str] = (),
    until: str | None = None,
    *,
    accept_rewind: bool = False,
    by: str = "",
) -> Outcome:
    """A person asks for it, so that what rests may start, and the attempts so far count no more.

    Its budget is worked out from what it has then: what somebody else gave it meanwhile stays.
    """

    def raise_(head: RunState) -> tuple[str, bytes]:
        budget = raised_to(head, given, until)
        if until is None and only_adds(given):
            return "more", msgspec.json.encode(topped(head, given)[0])
        return "budget", msgspec.json.encode(budget)

    budget = raise_ if given or until is not None else None
    return acts.resume(store, summary.run, accept_rewind=accept_rewind, by=by, budget=budget)


def refuse_homeless(store: SqliteStore, root: Summary, launch: Launch) -> None:
    """Refuse what cannot start where it worked: the folder is gone, and does not come back from a save."""
    folder = Path(os.path.realpath(root.state.workspace or "/"))
    if not folder.is_dir():
        if not root.state.save_point:
            raise not_a_folder(folder)
        recreating.lost(folder, store.root / "workspaces" / place_of(folder))
        return
    cwd = Path(os.fsdecode(raw(launch.cwd)))
    if not cwd.is_dir():
        raise UsageError(f"the folder {cwd} is not there", hint="make it, then ask again")


def wall_of(store: SqliteStore, summary: Summary) -> datetime | None:
    """Until when a quota wall is known to stand that the run goes on despite."""
    account = starting.account_in(store, summary) if summary.state.supervised else ""
    wall = walls.spare(store.root, account, summary.run)
    until = wall.until if wall is not None else summary.state.parked_until
    return until if until is not None and until > datetime.now(UTC) else None


def refuse_watched(store: SqliteStore, summary: Summary) -> None:
    """One supervisor at a time, also while it only waits to start its command again."""
    watcher = watchers.of(store.root, summary.run)
    if watcher is not None and watcher.supervisor:
        raise RunRefused(
            f"run {summary.run} of task {summary.task!r} is looked after by pid {watcher.supervisor} already",
            hint=f"wait for it, or stop it with `outlast kill {summary.run}`",
        )


def refuse_at_terminal(summary: Summary, launch: Launch) -> None:
    """A session at a terminal is gone on with at one."""
    if by_hand.is_at_terminal(launch) and not launch.opened:
        raise starting.no_terminal(summary)


def detach(store: SqliteStore, summary: Summary, other: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """Start the process that goes on with the run, apart from this one; `other` are further words for it."""
    log = guarding.folder_of(store.root, summary.run) / detaching.LOG
    return detaching.start(
        detaching.ourselves("resume", summary.run, "--woken", "--store", store.url, *other), log
    )
