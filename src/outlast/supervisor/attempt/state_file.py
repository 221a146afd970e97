"""`active_state.json`: the progress of a run, for scripts and for people who have only a shell.

It is a projection of the store, replaced in one step. outlast never reads it, so nothing waits for it to be on the disk."""

import contextlib
from datetime import UTC, datetime

import msgspec

from outlast.core import state as st
from outlast.inspect import show
from outlast.runs.engine.run import RunEngine
from outlast.store import durable
from outlast.store.local import Local
from outlast.workspace import repo


class ActiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The file's fields. All are always present; an unknown value is null."""

    task_id: str
    issue_number: str | None
    workspace_path: str | None
    branch_name: str | None
    progress_stage: str | None
    timestamp: datetime
    run_id: str
    seq: int
    beat: int
    status: str
    session: str | None
    memory_refs: tuple[dict[str, str], ...]
    last_save: str | None
    cause: str | None
    evidence: str | None


def of(state: st.RunState, status: st.Status, *, issue: str = "", branch: str = "") -> ActiveState:
    """The file's content for a run in this state. A script's own names override ours."""
    names = dict(state.names)
    return ActiveState(
        task_id=names.get("CURRENT_TASK_ID") or state.task,
        issue_number=names.get("ISSUE_NUMBER") or issue or None,
        workspace_path=names.get("WORKSPACE_PATH") or state.workspace or None,
        branch_name=names.get("BRANCH_NAME") or branch or None,
        progress_stage=names.get("PROGRESS_STAGE") or state.stage or None,
        timestamp=state.updated_at or datetime.now(UTC),
        run_id=state.run, seq=state.seq, beat=state.beats, status=status,
        session=state.session.session if state.session is not None else None,
        memory_refs=tuple({"name": ref.name, "uri": ref.uri, "digest": ref.digest} for ref in state.memory),
        last_save=state.last_save or None, cause=show.cause_of(state), evidence=state.evidence or None,
    )  # fmt: skip


def write_of(run: RunEngine, *, issue: str = "") -> None:
    """Write the file for a run's present state."""
    branch = repo.branch_in(run.folder) if run.terms.workspace else ""
    write(run.journal.store.local, of(run.state, run.state.status, issue=issue, branch=branch))


def write(local: Local, active: ActiveState) -> None:
    """Replace the file in one step. A disk that refuses it does no harm, and after a power cut it may be an older one.

    A state folder that was deleted meanwhile is not made again.
    """
    if not local.folder.is_dir():
        return
    path = local.state_file(active.run_id)
    with contextlib.suppress(OSError):
        durable.make_folder(path.parent)
        durable.replace_file(path, msgspec.json.format(msgspec.json.encode(active), indent=2) + b"\n")
