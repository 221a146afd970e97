"""The ending of `outlast run` and `outlast resume`: what it took, what it changed, where that is, and what to type next."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outlast.core import budget as budgets
from outlast.core.state import RunState
from outlast.core.text import count_of
from outlast.inspect import find, standing
from outlast.runs import file_changes, reader
from outlast.store.protocol import Store
from outlast.supervisor.chronicle.feed_events import FeedEnded, place_in
from outlast.supervisor.chronicle.sentences import spent_words
from outlast.workspace import repo, worktree_marker

# A line as `words` makes it: it stands below the sentence that says how a run ended.
IN_WORDS = re.compile(r"outlast: .+: [\d,]+ attempts?, [\d,]+ beats?, ")


def of(store: Store, run: str, exit_code: int, why: str) -> FeedEnded:
    """How a run is left by the process that carried it. `why` is what the person was told last."""
    now = datetime.now(UTC)
    state = reader.head(store, run)
    found = standing.of(state, find.shown_status(store, state, run), now, find.children_in(store))
    folder, branch, is_worktree = _place(state)
    place: dict[str, Any] = place_in(state, now)
    return FeedEnded(
        **place, exit_code=exit_code, status=state.status, standing=found.word, needs=found.need, why=why,
        beats=state.beats, time_ms=state.spent.time_ms, tokens=state.spent.tokens,
        cost_microusd=state.spent.cost_microusd, estimated=state.spent.estimated,
        files_changed=file_changes.count(store, state), folder=folder, branch=branch, worktree=is_worktree,
        next=_next(state, found, is_worktree=is_worktree),
    )  # fmt: skip


def _place(state: RunState) -> tuple[str, str, bool]:
    """The folder of a run, the branch that is checked out there, and whether outlast made it as a worktree."""
    if not state.workspace:
        return "", "", False
    if (place := worktree_marker.place_of(state.workspace)) is not None:
        return place.folder, place.branch, True
    return state.workspace, repo.branch_in(Path(state.workspace)), False


def _next(state: RunState, found: standing.Standing, *, is_worktree: bool) -> str:
    """The command to type next: of a run that is done in a worktree, the one that takes its result over."""
    task = shlex.quote(state.task)
    if is_worktree and found.word == "done":
        return f"outlast apply {task} --dry-run"
    if not found.next.startswith("outlast "):
        return f"outlast show {task}"
    return found.next.replace(state.run, task, 1)


def words(ended: FeedEnded, state: RunState, *, names_next: bool) -> str:
    """The same for the person, in one line. `names_next`: the sentence before it has no command yet."""
    live = budgets.Live(ended.at)
    parts = [count_of(ended.attempt, "attempt"), count_of(ended.beats, "beat"), _time(ended.time_ms)]
    parts += [spent] if (spent := spent_words(state, live)) else []
    parts += [f"{count_of(ended.files_changed, 'file')} changed"] if ended.files_changed else []
    where = f" in {ended.folder} on branch {ended.branch}" if ended.worktree else ""
    following = f"; next: `{ended.next}`" if names_next and ended.next else ""
    return f"{ended.task}: {', '.join(parts)}{where}{following}"


def _time(time_ms: int) -> str:
    seconds = round(time_ms / 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
