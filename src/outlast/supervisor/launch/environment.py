"""The environment that agents get, and hooks, shims and child runs read."""

import os
from collections.abc import Mapping

RUN = "OUTLAST_RUN"
TASK = "OUTLAST_TASK"
ATTEMPT = "OUTLAST_ATTEMPT"
SOCKET = "OUTLAST_SOCKET"
STORE = "OUTLAST_STORE"
BUDGET_FILE = "OUTLAST_BUDGET_FILE"
CONTEXT_FILE = "OUTLAST_CONTEXT_FILE"
CALL = "OUTLAST_CALL"  # which call of a script a process was started for
PROGRAMS = "OUTLAST_PROGRAMS"  # for which programs of shims it was, several apart by a space
BASH_ENV = "OUTLAST_BASH_ENV"  # below a guarded command: the BASH_ENV that it would have without the guard
GUARD, SHIMS = "guard", "shims"  # folders: of a guarded command in its run's, and of the shims in that


def attempt_mark(run: str, epoch: int) -> str:
    """The mark that every process of an attempt carries, and by which it is reaped."""
    return f"{run}.{epoch}"


def for_agent(
    *, run: str, task: str, epoch: int, socket: str, store: str, budget_file: str
) -> dict[str, str]:
    """The variables that outlast adds to an agent's environment."""
    return {
        RUN: run,
        TASK: task,
        ATTEMPT: attempt_mark(run, epoch),
        SOCKET: socket,
        STORE: store,
        BUDGET_FILE: budget_file,
    }


def with_git_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with `core.fsync=all` for every git process: the commits of a command are durable before any save."""
    given = variables.get("GIT_CONFIG_COUNT", "0")
    count = int(given) if given.isdigit() else 0
    return dict(variables) | {
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": "core.fsync",
        f"GIT_CONFIG_VALUE_{count}": "all",
    }


def is_below_guard(variables: Mapping[str, str]) -> bool:
    """Whether the shims of a guarded command are on this PATH."""
    return any(map(_is_guards, variables.get("PATH", "").split(os.pathsep)))


def without_guard(variables: Mapping[str, str], bash_env: str) -> dict[str, str]:
    """Without the shims of a guarded command around: a run inside of it has its own, and each call is on record once."""
    if not is_below_guard(variables):
        return dict(variables)
    places = variables.get("PATH", "").split(os.pathsep)
    found = dict(variables) | {"PATH": os.pathsep.join(place for place in places if not _is_guards(place))}
    if os.path.basename(os.path.dirname(found.get("BASH_ENV", ""))) == GUARD:
        del found["BASH_ENV"]
        found |= {"BASH_ENV": bash_env} if bash_env else {}
    return found


def _is_guards(place: str) -> bool:
    return place.endswith(f"/{GUARD}/{SHIMS}") and os.path.exists(os.path.join(place, "outlast"))
