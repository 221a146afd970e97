"""The two ways in: `outlast.run` for a task, `beat.run` for a child of an open beat."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from outlast.core.values import scrub
from outlast.runs.engine.beat import BeatEngine
from outlast.runs.engine.run import RunEngine
from outlast.runs.opening import identity
from outlast.runs.opening.project import project_of
from outlast.runs.opening.terms import (
    Terms,
    budget_of,
    commands_of,
    files_mode,
    goal_of,
    path_of,
    project_name,
    task_name,
    workspace_of,
)
from outlast.runs.run import AsyncRun, Run
from outlast.runs.types import BudgetLike


def run(
    task: str | int,
    *,
    goal: str | None = None,
    done: Sequence[str] | str | None = None,
    invariants: Sequence[str] | str | None = None,
    budget: BudgetLike = None,
    until: str | datetime | None = None,
    reserve: str | int | None = None,
    store: str | os.PathLike[str] | None = None,
    project: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    files: Literal["rewind", "keep"] = "rewind",
    moved: bool = False,
    amend: bool = False,
    again: bool = False,
) -> Run:
    """A new run of the task, or the same one where it stopped. Enter it with `with` or `async with`.

    Raises UsageError for terms that make no sense. Entering it raises RunHeld when a live attempt has it,
    ContractChanged for other terms than at first, RunRefused when it is paused, failed, cancelled or handed off. A run
    that is done is entered too, and has no more beats.

    With `workspace` the folder is saved at each beat's end and at every ending. On resume what is found is saved first;
    then the files go back to the last save point, or stay with `files="keep"`. Raises WorkspaceMoved where a person
    moved HEAD meanwhile, unless `moved` says that this is as it should be.

    A budget is like "400k" or ["400k", "usd=12", "time=8h"]. It may work `until` "07:00", "+8h" or a datetime; `reserve`
    ("10%") of the budget is kept for its own ending.
    """
    terms = terms_of(
        task, goal=goal, done=done, invariants=invariants, budget=budget, until=until, reserve=reserve, store=store,
        project=project, workspace=workspace, files=files, moved=moved, amend=amend, again=again,
    )  # fmt: skip
    return Run(RunEngine(terms))


def terms_of(
    task: str | int,
    *,
    goal: str | None = None,
    done: Sequence[str] | str | None = None,
    invariants: Sequence[str] | str | None = None,
    budget: object = None,
    until: str | datetime | None = None,
    reserve: str | int | None = None,
    store: str | os.PathLike[str] | None = None,
    project: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    files: str = "rewind",
    moved: bool = False,
    amend: bool = False,
    again: bool = False,
    started_in: Path | None = None,
) -> Terms:
    """The terms of a run, checked. Raises UsageError. `started_in`: where a command was typed that found its workspace itself."""
    folder = workspace_of(workspace)
    here = started_in or folder or Path.cwd()
    program = identity.program_here() if started_in is None else ""
    return Terms(
        task=task_name(task), goal=goal_of(goal), checks=commands_of(done, "done"),
        invariants=commands_of(invariants, "invariants"), budget=budget_of(budget, until, reserve),
        project=scrub(project_name(project) or project_of(folder or Path.cwd())), project_given=project is not None,
        workspace=scrub(str(folder)) if folder is not None else "", store=path_of(store, "store"),
        amend=amend, again=again, files=files_mode(files), moved=moved, workspace_given=started_in is None,
        origin=identity.origin_of(here, program=program, named=project is not None),
    )  # fmt: skip


def child(
    beat: BeatEngine,
    task: str,
    *,
    goal: str | None,
    done: Sequence[str] | str | None,
    invariants: Sequence[str] | str | None,
) -> Run:
    """A child run of an open beat; a finished one has its result and no more beats."""
    return Run(_child(beat, task, goal, done, invariants))


def async_child(
    beat: BeatEngine,
    task: str,
    *,
    goal: str | None,
    done: Sequence[str] | str | None,
    invariants: Sequence[str] | str | None,
) -> AsyncRun:
    """Open a child run of a beat of an async run."""
    return AsyncRun(_child(beat, task, goal, done, invariants))


def _child(
    beat: BeatEngine,
    task: str,
    goal: str | None,
    done: Sequence[str] | str | None,
    invariants: Sequence[str] | str | None,
) -> RunEngine:
    beat.check_open()
    parent = beat.owner
    terms = Terms(
        task=task_name(task), goal=goal_of(goal), checks=commands_of(done, "done"),
        invariants=commands_of(invariants, "invariants"), project=parent.terms.project, workspace=parent.terms.workspace,
    )  # fmt: skip
    return RunEngine(terms, (parent, beat))
