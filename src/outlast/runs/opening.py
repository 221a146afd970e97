"""The two ways in: `outlast.run` for a task, `beat.run` for a child of an open beat."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlast.core.values import scrub
from outlast.errors import UsageError
from outlast.runs.beat import Beat
from outlast.runs.project import project_of
from outlast.runs.run import Run
from outlast.runs.terms import Terms, budget_of, commands_of, task_name

PROJECT_CHARS_MAX = 4_096


def run(
    task: str | int,
    *,
    goal: str | None = None,
    done: Sequence[str] | str | None = None,
    invariants: Sequence[str] | str | None = None,
    budget: object = None,
    store: str | os.PathLike[str] | None = None,
    project: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    amend: bool = False,
    again: bool = False,
) -> Run:
    """A new run of the task, or the same one where it stopped. Enter it with `with` or `async with`.

    Raises RunHeld when a live attempt has it, ContractChanged for other terms than at first, RunRefused when it is
    paused, failed, cancelled or handed off. A run that is done is entered too, and has no more beats.
    """
    name = task_name(task)
    folder = Path(workspace).absolute() if workspace is not None else Path.cwd()
    if workspace is not None and not folder.is_dir():
        raise UsageError(
            f"the workspace {folder} is not a folder", hint="make it, or give another workspace="
        )
    if project is not None and len(project) > PROJECT_CHARS_MAX:
        raise UsageError(
            f"a project's name has at most {PROJECT_CHARS_MAX:,} characters", hint="give a shorter project="
        )
    terms = Terms(
        task=name, goal=goal, checks=commands_of(done, "done"), invariants=commands_of(invariants, "invariants"),
        budget=budget_of(budget), project=scrub(project or project_of(folder)),
        workspace=scrub(str(folder)) if workspace is not None else "", store=os.fspath(store) if store is not None else None,
        amend=amend, again=again,
    )  # fmt: skip
    return Run(terms)


def child(
    parent: Run, beat: Beat, task: str, *, goal: str | None = None, done: Any = None, invariants: Any = None
) -> Run:
    """A child run of an open beat; a finished one has its result and no more beats."""
    terms = Terms(
        task=task_name(task), goal=goal, checks=commands_of(done, "done"), invariants=commands_of(invariants, "invariants"),
        project=parent.terms.project, workspace=parent.terms.workspace,
    )  # fmt: skip
    return Run(terms, (parent, beat))
