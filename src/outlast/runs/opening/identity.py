"""Which run a start means: looked up by project, by folder and by workspace before a new run is opened."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from outlast.core import statuses
from outlast.core.values import Origin, scrub
from outlast.errors import AmbiguousRun
from outlast.runs.opening.terms import PROJECT_BYTES_MAX, Terms
from outlast.store.protocol import PAGE_MAX, RunFilter, Store, Summary
from outlast.workspace.git import layout


def origin_of(folder: Path, *, program: str = "", named: bool = False) -> Origin:
    """Where a run is begun, as it is recorded."""
    real = os.path.realpath(folder)
    inode = 0
    if os.path.isdir(real):
        inode = os.stat(real).st_ino
    fits = all(len(text.encode("utf-8", "replace")) <= PROJECT_BYTES_MAX for text in (real, program))
    return Origin(scrub(real), inode, scrub(program), named) if fits else Origin(inode=inode, named=named)


def program_here() -> str:
    """The real path of the Python program that this is; empty at a prompt and for `python -c`."""
    words: list[str] = getattr(sys, "argv", [])
    return os.path.realpath(words[0]) if words and os.path.isfile(words[0]) else ""


def identified(terms: Terms, store: Store) -> Terms:
    """The terms, in the project that the run they mean has. If the caller names the project, that one counts.

    A repository that was made, moved or removed around the folder would make it another project, and so another run
    that does everything again. Raises AmbiguousRun where two runs may be the one: outlast does not choose.
    """
    if terms.project_given:
        return terms
    known = _newest(store, terms.task)
    own = known.pop(terms.project, None)
    same = [each for each in known.values() if not _is_named(each) and _is_here(each, terms)]
    going = [each for each in same if each.state.status not in statuses.ENDED]
    if going and own is not None and own.state.status != "cancelled":
        going.insert(0, own)
    if len(going) > 1:
        raise _two(terms, going)
    if going:
        return _as(terms, going[0])
    if own is not None:
        return terms
    if same:
        return _as(terms, same[0])
    perhaps = [each for each in known.values() if _may_be(each, terms)]
    if perhaps:
        raise _perhaps(terms, perhaps)
    return terms


def _newest(store: Store, task: str) -> dict[str, Summary]:
    """The newest run of a task in each project."""
    found: dict[str, Summary] = {}
    after = 0
    while page := store.list(RunFilter(task=task, parent=""), after=after):
        for each in page:
            found.setdefault(each.project, each)
        if len(page) < PAGE_MAX:
            break
        after = page[-1].id
    return found


def _is_named(run: Summary) -> bool:
    return run.state.origin is not None and run.state.origin.named


def _as(terms: Terms, run: Summary) -> Terms:
    """The terms of a run that exists; where the folder decided the workspace, the run's own."""
    workspace = terms.workspace
    if workspace and not terms.workspace_given:
        workspace = run.state.workspace or workspace
    return msgspec.structs.replace(terms, project=run.project, workspace=workspace)


def _is_here(run: Summary, terms: Terms) -> bool:
    """Whether a run of another project was begun in one of these folders, or in a repository around them that is gone."""
    was = list(_folders(run))
    if any(_is_same(old, new) for old in was for new in _places(terms)):
        return True
    project = Path(run.project)
    if project.name != ".git" or layout.is_git_folder(project):
        return False
    return any(_is_below(Path(place), project.parent) for place in _places(terms))


def _may_be(run: Summary, terms: Terms) -> bool:
    """Whether an open run of another project may be the one: its folder was moved here, or its program was started in
    another folder of the same tree, or without the project's name that it was begun with."""
    was, now = run.state.origin, terms.origin
    if was is None or now is None or run.state.status in statuses.ENDED or not was.folder:
        return False
    if was.named:
        return bool(was.program) and was.program == now.program and _is_same(was.folder, now.folder)
    if now.inode and was.inode == now.inode and not os.path.lexists(was.folder):
        return True
    if not was.program or was.program != now.program:
        return False
    old, new, program = Path(was.folder), Path(now.folder), Path(now.program)
    without = layout.around(old) is None or layout.around(new) is None
    return without and (
        _is_below(old, new) or _is_below(new, old) or _is_below(program, old) or _is_below(program, new)
    )


def _folders(run: Summary) -> Iterator[str]:
    """The folders that a run is known to have been begun in. Older journals tell its project and workspace alone."""
    state = run.state
    yield run.project
    if state.workspace:
        yield state.workspace
    if state.origin is not None and state.origin.folder:
        yield state.origin.folder


def _places(terms: Terms) -> Iterable[str]:
    """The folders of this start."""
    found = [terms.origin.folder] if terms.origin is not None else []
    return [place for place in (*found, terms.workspace) if place]


def _is_same(old: str, new: str) -> bool:
    """Whether two paths lead to one folder: through a link, a bind mount, or written in another case."""
    if not os.path.isabs(old):
        return False
    if os.path.realpath(old) == os.path.realpath(new):
        return True
    return os.path.isdir(old) and os.path.isdir(new) and os.path.samefile(old, new)


def _is_below(inner: Path, outer: Path) -> bool:
    return inner == outer or outer in inner.parents


def _two(terms: Terms, runs: list[Summary]) -> AmbiguousRun:
    return AmbiguousRun(
        terms.task,
        [f"{each.run} ({each.state.status}, project {each.project})" for each in runs],
        hint=" or ".join(f"`outlast cancel {each.run}`" for each in runs)
        + " ends one, and the other goes on",
    )


def _perhaps(terms: Terms, runs: list[Summary]) -> AmbiguousRun:
    here = terms.origin.folder if terms.origin is not None else terms.project
    named = [f"{each.run} ({each.state.status}, begun in {_begun(each)})" for each in runs]
    first = runs[0]
    return AmbiguousRun(
        terms.task,
        [*named, f"a new one (in {here})"],
        hint=f"to go on with {first.run} give project={first.project!r}; for a new run give project={terms.project!r}, "
        f"or end the old one with `outlast cancel {first.run}`",
    )


def _begun(run: Summary) -> str:
    return run.state.origin.folder if run.state.origin is not None else run.project
