"""The environment that agents get, and hooks, shims and child runs read."""

RUN = "OUTLAST_RUN"
TASK = "OUTLAST_TASK"
ATTEMPT = "OUTLAST_ATTEMPT"
SOCKET = "OUTLAST_SOCKET"
STORE = "OUTLAST_STORE"
BUDGET_FILE = "OUTLAST_BUDGET_FILE"


def attempt_mark(run: str, epoch: int) -> str:
    """The mark that every process of an attempt carries, and by which it is reaped."""
    return f"{run}.{epoch}"


def for_agent(
    *, run: str, task: str, epoch: int, socket: str, store: str, budget_file: str
) -> dict[str, str]:
    """What an agent's environment gains."""
    return {
        RUN: run,
        TASK: task,
        ATTEMPT: attempt_mark(run, epoch),
        SOCKET: socket,
        STORE: store,
        BUDGET_FILE: budget_file,
    }
