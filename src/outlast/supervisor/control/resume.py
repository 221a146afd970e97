"""`outlast resume`: the checks before a run goes on, the request that allows it, and the process that does it."""

import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast.core.state import RunState
from outlast.core.values import Allowance
from outlast.errors import RunRefused, UsageError
from outlast.inspect import find
from outlast.operations import requests
from outlast.operations.requests import Outcome
from outlast.runs.opening.terms import not_a_folder, only_adds, raised as raised_to, topped
from outlast.store.protocol import Store, Summary
from outlast.supervisor import start
from outlast.supervisor.budget import check, quota_walls
from outlast.supervisor.control import takeover
from outlast.supervisor.guardian import lock
from outlast.supervisor.launch import background, last_launch, launch as supervisor_launch
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person
from outlast.workspace.restore import recreate
from outlast.workspace.types import raw


def launch_of(store: Store, summary: Summary) -> Launch | None:
    """How the run was last started; None for a user's own program, which the user starts."""
    return last_launch.launch_of(store, summary) if summary.state.supervised else None


def raised(
    store: Store,
    summary: Summary,
    given: Sequence[str],
    until: str | None,
    person: Person,
) -> Allowance | None:
    """The run's new budget, where the person asks for one. Raises UsageError for a budget that makes no sense."""
    if not given and until is None:
        return None
    root = requests.standing(store, requests.root_of(store, summary.run).run)
    head, before = root.state, root.state.budget
    requests.allow(head, find.shown_status(store, head, head.run), "resume")
    budget = raised_to(head, given, until)
    launch = launch_of(store, summary)
    if launch is not None:
        refuse_homeless(store, root, launch)
    if launch is not None and (before is None or before.cost_microusd is None):
        variables, _ = supervisor_launch.environment_of(launch, start.inherited())
        check.check(budget, last_launch.known_agent(launch), launch, variables, person)
    return budget


def allow_again(
    store: Store,
    summary: Summary,
    given: Sequence[str] = (),
    until: str | None = None,
    *,
    accept_rewind: bool = False,
    by: str = "",
) -> Outcome:
    """Let a run start again because a person wants that; the attempts so far no longer count.

    The new budget is computed from the budget at that moment, so another person's increase is not lost.
    """

    def raise_(head: RunState) -> tuple[str, bytes]:
        budget = raised_to(head, given, until)
        if until is None and only_adds(given):
            return "more", msgspec.json.encode(topped(head, given)[0])
        return "budget", msgspec.json.encode(budget)

    budget = raise_ if given or until is not None else None
    return requests.resume(store, summary.run, accept_rewind=accept_rewind, by=by, budget=budget)


def refuse_homeless(store: Store, root: Summary, launch: Launch) -> None:
    """Refuse a run whose folder is gone and cannot be restored from a save."""
    folder = Path(os.path.realpath(root.state.workspace or "/"))
    if not folder.is_dir():
        if not root.state.save_point:
            raise not_a_folder(folder)
        recreate.find_lost(folder, store.local.private_of(folder))
        return
    cwd = Path(os.fsdecode(raw(launch.cwd)))
    if not cwd.is_dir():
        raise UsageError(f"the folder {cwd} is not there", hint="make it, then ask again")


def wall_of(store: Store, summary: Summary) -> datetime | None:
    """Until when a quota wall is known to stand that the run goes on despite."""
    account = last_launch.account_in(store, summary) if summary.state.supervised else ""
    wall, parked = quota_walls.spare(store.shelf, account, summary.run), summary.state.parked_until
    until = parked if parked is not None or wall is None else wall.until
    return until if until is not None and until > datetime.now(UTC) else None


def refuse_watched(store: Store, summary: Summary) -> None:
    """One supervisor at a time, also while it only waits to start its command again."""
    watcher = lock.of(store.local, summary.run)
    if watcher is not None and watcher.supervisor:
        raise RunRefused(
            f"pid {watcher.supervisor} already supervises run {summary.run} of task {summary.task}",
            hint=f"wait for it, or stop it with `outlast kill {summary.run}`",
        )


def refuse_at_terminal(summary: Summary, launch: Launch) -> None:
    """Refuse to resume a session at a terminal without one."""
    if takeover.is_at_terminal(launch) and not launch.opened:
        raise start.no_terminal(summary)


def detach(
    store: Store, summary: Summary, other: Sequence[str] = (), *, pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start the process that goes on with the run, apart from this one; `other` are further words for it."""
    log = store.local.supervisor_log(summary.run)
    return background.spawn(
        background.ourselves("resume", summary.run, "--woken", "--store", store.url, *other),
        log,
        pass_fds=pass_fds,
    )
