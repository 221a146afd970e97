"""Which run a person means: by run id, by a unique beginning of one, by task, or by `project:task`."""

import re
from collections.abc import Iterator
from pathlib import Path

from outlast.core import state as st, statuses
from outlast.core.text import NEAREST_MAX, did_you_mean
from outlast.core.verdict import Children, doubts_among, to_settle
from outlast.errors import AmbiguousRun, StoreCorrupt, UnknownRun
from outlast.runs.opening.project import project_of
from outlast.store.protocol import PAGE_MAX, RunFilter, Store, Summary

# A beginning goes into a pattern of the store, so it must not contain special characters of patterns.
# A short one fits a run by accident, and some commands cannot be undone.
BEGINNING_CHARS_MIN = 4
_ID_BEGINNING = re.compile(rf"[a-z0-9]{{{BEGINNING_CHARS_MIN},40}}")


def find(store: Store, name: str, project: str) -> Summary:
    """The run that `name` means to somebody who works in `project`. Raises UnknownRun, AmbiguousRun, or StoreCorrupt for a
    run of which nothing is left but its name.

    An exact run id wins, then a task of the project (its newest run), then anything else that fits if it is unique.
    """
    beginning = _by_beginning(store, name)
    exact = [summary for summary in beginning if summary.run == name]
    mine = _newest(store, name, project)
    for found in (exact, mine):
        if found:
            return _with_events(found[0])
    fitting = {summary.run: summary for summary in (*beginning, *_newest(store, name))}
    if not fitting and ":" in name:
        fitting = {summary.run: summary for summary in _in_named_project(store, name)}
    if not fitting:
        raise _unknown(store, name, project)
    if len(fitting) > 1:
        raise AmbiguousRun(name, [describe(summary) for summary in fitting.values()])
    return _with_events(next(iter(fitting.values())))


def _with_events(summary: Summary) -> Summary:
    if not summary.state.seq:
        raise StoreCorrupt(
            f"run {summary.run} of task {summary.task} has no events",
            hint="it is damaged: see `outlast doctor --all`",
        )
    return summary


def _unknown(store: Store, name: str, project: str) -> UnknownRun:
    """The error for a name that fits no run, with the names that it is most like."""
    error = UnknownRun(name)
    error.hint = like(store, name, project, error.hint)
    if len(name) < BEGINNING_CHARS_MIN:
        error.hint += f"; give at least {BEGINNING_CHARS_MIN} characters of a run id"
    return error


def like(store: Store, name: str, project: str, then: str) -> str:
    """`did you mean …?`, followed by `then`, with the tasks and run ids, among the newest, that a mistyped name is most like."""
    newest = store.list(RunFilter(parent=""), limit=PAGE_MAX)
    mine = [each.task for each in newest if each.project == project]
    others = [f"{project_name(each.project)}:{each.task}" for each in newest if each.project != project]
    return did_you_mean(name, [*mine, *others, *(each.run for each in newest)], then, at_most=NEAREST_MAX)


def project_names(store: Store) -> list[str]:
    """The projects of the newest runs: as they are recorded, and the names of their folders."""
    projects = dict.fromkeys(summary.project for summary in store.list(RunFilter(parent=""), limit=PAGE_MAX))
    return [*projects, *dict.fromkeys(map(project_name, projects))]


def _by_beginning(store: Store, name: str) -> list[Summary]:
    return list(all_runs(store, RunFilter(run_prefix=name))) if _ID_BEGINNING.fullmatch(name) else []


def _newest(store: Store, task: str, project: str = "") -> list[Summary]:
    """The newest run of a task, in one project or in each. Children are found by their ids alone."""
    if not task:
        return []
    newest: dict[str, Summary] = {}
    for summary in all_runs(store, RunFilter(task=task, project=project, parent="")):
        newest.setdefault(summary.project, summary)
    return list(newest.values())


def _in_named_project(store: Store, name: str) -> list[Summary]:
    """`name:12`: tries every split, because tasks and projects may contain a colon themselves."""
    found: list[Summary] = []
    for at in (index for index, char in enumerate(name) if char == ":"):
        wanted, task = name[:at], name[at + 1 :]
        found += [s for s in _newest(store, task) if wanted in (project_name(s.project), s.project)]
    return found


def describe(summary: Summary) -> str:
    """A candidate in an error: its name to type, and its description."""
    return f"{summary.run} ({project_name(summary.project)}:{summary.task})"


def all_runs(store: Store, where: RunFilter, *, unreadable: bool = False) -> Iterator[Summary]:
    """All runs that match, newest first, page by page; unreadable ones only if asked for."""
    after = 0
    while page := store.list(where, after=after, unreadable=unreadable):
        yield from page
        if len(page) < PAGE_MAX:
            return
        after = page[-1].id


def project_name(project: str) -> str:
    """The folder name of a project: `app` for /src/app/.git, and for a bare clone /srv/app.git."""
    path = Path(project)
    name = path.parent.name if path.name == ".git" else path.name.removesuffix(".git")
    return name or project


def project_named(store: Store | None, given: str) -> str:
    """The project that `--project` means: one that the store has under this very name, else that of the folder."""
    if store is not None and store.list(RunFilter(project=given), limit=1):
        return given
    folder = Path(given)
    return project_of(folder) if folder.is_dir() else given


def doubts(store: Store, state: st.RunState) -> list[tuple[str, st.OpenEffect]]:
    """Effects in doubt of a run and of its open beat's children, each with the run it belongs to."""
    return doubts_among(children_in(store), state)


def children_in(store: Store) -> Children:
    """A function that asks the store for the children of a run's open beat."""

    def ask(state: st.RunState) -> list[st.RunState]:
        where = RunFilter(parent=state.run, parent_beat=state.beats + 1)
        return [child.state for child in store.list(where)]

    return ask


def doubtful(children: Children, state: st.RunState, status: st.Status) -> int:
    """How many effects are in doubt, of a run that is in doubt, or that rests and has some that a person settles first."""
    rests = status in ("paused", "parked", "failed")
    if status == "in_doubt" or (rests and to_settle(children, state)):
        return len(doubts_among(children, state))
    return 0


def shown_status(store: Store, state: st.RunState, root: str) -> st.Status:
    """The status for readers: the folded status, corrected by whether the holder lives and what is in doubt."""
    return status_if(store, state, store.holder_lives(root))


def status_if(store: Store, state: st.RunState, lives: bool) -> st.Status:
    """The status of a run, given whether its holder lives."""
    return status_among(children_in(store), state, lives)


def status_among(children: Children, state: st.RunState, lives: bool) -> st.Status:
    """The status for readers, if the children are known."""
    if state.status not in ("running", "interrupted", "in_doubt") or (state.status == "running" and lives):
        return state.status
    in_doubt = any(effect.policy != "give_up" for _, effect in doubts_among(children, state))
    status = statuses.shown_status(state.status, holder_lives=lives, in_doubt=in_doubt)
    if status in ("interrupted", "in_doubt"):
        return "in_doubt" if in_doubt else "interrupted"
    return status
