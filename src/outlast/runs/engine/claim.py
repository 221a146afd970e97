"""The claim on a run: find or make it, take its lease, read its head."""

from typing import TYPE_CHECKING

from outlast import faults
from outlast.core import statuses
from outlast.core.values import Parent
from outlast.errors import NestedRun, UsageError
from outlast.runs import attempts, reader
from outlast.runs.engine import stores
from outlast.runs.engine.beat import open_beat
from outlast.runs.engine.heartbeat import Heartbeat
from outlast.runs.engine.steps import Block, Steps
from outlast.runs.journal import Journal
from outlast.runs.opening import admission, identity
from outlast.runs.opening.terms import not_a_folder
from outlast.store.protocol import Lease, Store

if TYPE_CHECKING:
    from outlast.runs.engine.beat import BeatEngine
    from outlast.runs.engine.run import RunEngine


class Claim:
    """This process's hold on a root run: its store, and the lease once it is taken."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lease: Lease | None = None

    def give_back(self) -> None:
        """Let others write the run."""
        try:
            if self.lease is not None:
                Heartbeat.remove(self.store, self.lease)
                self.store.release(self.lease)
        finally:
            stores.give_back(self.store)


class ChildClaim:
    """A child is written under its root's lease, by one at a time."""

    def __init__(self, root: "RunEngine", child: str) -> None:
        root.children.enter(child)
        self._root, self._child = root, child

    def give_back(self) -> None:
        """Let the child be opened again."""
        self._root.children.leave(self._child)


def claim(run: "RunEngine") -> Steps:
    """Find or make the run and become its writer. A run that is done is read, and has no lease.

    Where this raises, nothing is held that was not held before: a run that is open already stays as it is.
    """
    if not run.closed:
        raise UsageError(f"the run of task {run.terms.task} is already open")
    _refuse_nesting(run)
    run.forget()
    try:
        yield Block(lambda: _claim(run))
    except BaseException:
        run.give_back()
        raise


def _refuse_nesting(run: "RunEngine") -> None:
    beat = open_beat.get()
    if beat is not None and not beat.closed and not beat.owner.closed and run.parent is None:
        raise NestedRun(
            f"outlast.run({run.terms.task!r}) inside the open beat {beat.number} of task {beat.owner.task}",
            hint="use `beat.run(task)` for a child run",
        )


def _claim(run: "RunEngine") -> None:
    if run.parent is not None:
        _claim_child(run, *run.parent)
        return
    store = stores.acquire(run.terms.store or run.settings["store"] or None)
    held = run.claim = Claim(store)
    terms = run.terms = identity.identified(run.terms, store)
    if not run.folder.is_dir() and not admission.may_come_back(terms, store):
        raise not_a_folder(run.folder)
    made = admission.make(terms, store, run.supervision.launch)
    head = reader.head(store, made)
    if terms.again and head.status in statuses.ENDED:
        made = admission.make(terms, store, run.supervision.launch, after=made)
        head = reader.head(store, made)
    admission.admit(terms, store, head, is_child=False)
    if head.status == "done":
        run.journal = Journal(store, attempts.NO_LEASE, head)
        run.result = reader.result(store, head)
        return
    held.lease = store.claim(made, ttl_s=run.settings["lease_s"])
    admission.refuse_other_host(store, held.lease)
    head = reader.head(store, made)
    admission.admit(terms, store, head, is_child=False)
    run.journal = Journal(store, held.lease, head, run)
    run.journal.listener = run.supervision.listener
    Heartbeat.add(store, held.lease, run.settings["lease_s"])
    if terms.workspace:
        from outlast.runs.files import Files

        run.files = Files(run.folder, store.local, made, terms.task, run.settings)


def _claim_child(run: "RunEngine", parent: "RunEngine", beat: "BeatEngine") -> None:
    root = parent.root
    store = parent.journal.store
    parent.children.may_exist = True
    made = store.create(admission.opened(run.terms, Parent(parent.id, beat.number, root.id)))
    faults.point("child.opened")
    head = reader.head(store, made)
    admission.admit(run.terms, store, head, is_child=True)
    run.journal = Journal(store, root.journal.lease, head, run)
    if not run.is_done:
        run.claim = ChildClaim(root, made)
    run.result = reader.result(store, head)
