"""How a person's request reaches a run: pause, resume, cancel, hand off, settle, amend. Plans are in `acts`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from outlast import settings
from outlast.core import events as ev, questions, restarts, state as st, statuses
from outlast.core.text import did_you_mean
from outlast.core.values import Allowance, Contract
from outlast.errors import RunHeld, RunRefused, StoreBusy, UnknownRun, UsageError
from outlast.inspect import find, show
from outlast.operations.timing import Timing
from outlast.runs import attempts, inbox, reader
from outlast.runs.engine.drivers import blocking
from outlast.runs.engine.questions import ANSWER, AnswerArgs
from outlast.runs.engine.steps import Append
from outlast.runs.journal import Journal
from outlast.runs.opening import admission
from outlast.store.protocol import Request, RunFilter, Store, Summary

RESULT_MAX_BYTES = 1 << 20
_RELATIVE = ("more", "less")  # two of the same are two wishes

# From a run's head to the request that gives it another budget: what, and its arguments.
Raise = Callable[[st.RunState], tuple[str, bytes]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an act. `in_inbox`: a living holder has the request in its inbox; else it is done."""

    run: str
    task: str
    before: st.Status
    status: st.Status
    in_inbox: bool = False
    changed: bool = True


def pause(store: Store, run: str, *, by: str = "") -> Outcome:
    """Stop after the act under way, and start no more until `resume`."""
    return ask(store, run, "pause", "pause", by=by)


def cancel(store: Store, run: str, *, by: str = "") -> Outcome:
    """Stop for good; a new run of the task needs `again=True`, or `--again` on the command line."""
    return ask(store, run, "cancel", "cancel", by=by)


def handoff(store: Store, run: str, *, take_back: bool = False) -> Outcome:
    """Seal the run so that another store can take it over, or undo that."""
    if take_back:
        return ask(store, run, "take_back", "take_back")
    return ask(store, run, "handoff", "handoff")


def resume(
    store: Store, run: str, *, accept_rewind: bool = False, by: str = "", budget: Raise | None = None
) -> Outcome:
    """Allow a paused, failed or parked run to start again. Raises StoreRewound unless that is accepted.

    `budget`: what it gets besides, asked when nobody else can change that any more.
    """
    summary = root_of(store, run)
    before = find.shown_status(store, summary.state, summary.run)
    allow(summary.state, before, "resume")
    if accept_rewind:
        store.accept_rewind(summary.run)
    # Claimed also when there is nothing to change, because claiming finds out whether the store was rewound.
    with claimed(store, summary.run) as journal:
        drain(journal)
        asks_again = _asks_again(journal)
        status = find.status_if(store, journal.state, lives=False)
        allow(journal.state, status, "resume")
        raised = budget(journal.state) if budget is not None else None
        changed = accept_rewind or asks_again or statuses.after(status, "resume") != status
        if accept_rewind:
            take(journal, own_request(journal, "accept_rewind", by=by))
        if statuses.after(status, "resume") != status:
            take(journal, own_request(journal, "resume", by=by))
        elif journal.state.awaits_start or asks_again or _counts(journal.state):
            # An attempt that died is not buried: the next one asks what it left.
            _write(journal, inbox.requested(own_request(journal, "resume", by=by), journal))
        if raised is not None:
            _write(journal, inbox.requested(own_request(journal, *raised, by=by), journal))
        if journal.state.parked_until is not None:
            _write(journal, ev.Woken(at=journal.now(), by=by or settings.user_name()))
        status = find.status_if(store, journal.state, lives=False)
    return Outcome(run=summary.run, task=summary.task, before=before, status=status, changed=changed)


def _asks_again(journal: Journal) -> bool:
    """Whether a call that nobody answered in time may ask once more, now that a person is there. An agent is told instead that
    nobody answered, and may ask by itself."""
    if journal.state.session is not None:
        return False
    if late := questions.overdue(journal.state.questions, journal.now()):
        _write(journal, *late)
    return any(each.answer == "expired" for each in journal.state.questions)


def _counts(state: st.RunState) -> bool:
    """Whether attempts of a command speak against another one, which a person's word ends."""
    return state.supervised and (state.past != restarts.Past() or state.attempt is not None)


def amend(store: Store, run: str, contract: Contract) -> Outcome:
    """Change goal, checks or invariants on purpose."""
    return ask(store, run, "amend", "amend", msgspec.json.encode(inbox.AmendArgs(contract)))


def set_budget(store: Store, run: str, budget: Allowance | None, *, by: str = "") -> Outcome:
    """Give the run another allowance, or none."""
    return ask(store, run, "amend", "budget", msgspec.json.encode(budget), by=by)


def add_budget(store: Store, run: str, more: Allowance, *, by: str = "") -> Outcome:
    """Put more on top of the run's allowance, whatever it is when the running process applies that."""
    return ask(store, run, "amend", "more", msgspec.json.encode(more), by=by)


def note(store: Store, run: str, what: str, args: bytes, *, by: str = "") -> bool:
    """Put on record that something was done with a run that changes nothing of it; False where its holder will.

    An attempt that died is not buried by that. Raises StoreError where it cannot be written.
    """
    root = root_of(store, run)
    status = find.shown_status(store, root.state, root.run)
    if status != "running":
        try:
            with claimed(store, root.run) as journal:
                _write(journal, inbox.requested(own_request(journal, what, args, by=by), journal))
                return True
        except RunHeld:
            pass
    _put(store, root, status, what, args, by)
    return False


def answer(store: Store, run: str, args: AnswerArgs, *, by: str = "") -> Outcome:
    """Record a person's answer to a question of a root run, or ask its holder to."""
    return ask(store, run, "answer", ANSWER, msgspec.json.encode(args), by=by)


def take_answers(store: Store, run: str) -> bool:
    """Take in the answers that lie in the inbox of a run that rests; and let time answer what is overdue. Whether anything changed.

    Raises RunHeld where somebody has the run open: they take the answers in.
    """
    head = summary_of(store, run).state
    late = questions.overdue(head.questions, attempts.now())
    waiting = store.inbox.pending(run)
    if not late and not any(each.what == ANSWER for each in waiting):
        return False
    with claimed(store, run) as journal:
        if journal.state.attempt is not None:
            return False  # it died, and its next start takes them in
        for request in store.inbox.pending(run):
            if request.what == ANSWER:
                take(journal, request)
        if late := questions.overdue(journal.state.questions, journal.now()):
            _write(journal, *late)
    return True


# -- settling ----------------------------------------------------------------------------------------------------------


def settle(
    store: Store, run: str, effect: str, finding: ev.Finding, result: bytes = b"null", *, by: str = ""
) -> Outcome:
    """Record what a person found out about an effect in doubt, of the run or of the child run that is named."""
    args = msgspec.json.encode(settling(store, run, effect, finding, result))
    summary = summary_of(store, run)
    return ask(store, run, "settle", "settle", args, lambda: _require_doubt(store, summary, effect), by=by)


def settling(
    store: Store, run: str, effect: str, finding: ev.Finding, result: bytes = b"null"
) -> inbox.SettleArgs:
    """The request that settling would make; writes nothing. Raises UsageError, RunRefused if it makes no sense."""
    raw = _checked(finding, result)
    summary = summary_of(store, run)
    root = root_of(store, run)
    allow(root.state, find.shown_status(store, root.state, root.run), "settle")
    _require_doubt(store, summary, effect)
    return inbox.SettleArgs(effect, finding, raw, "" if summary.run == root.run else summary.run)


def _checked(finding: ev.Finding, result: bytes) -> msgspec.Raw:
    if len(result) > RESULT_MAX_BYTES:
        raise UsageError(
            f"a result of {len(result):,} bytes is too large to settle with",
            hint=f"at most {RESULT_MAX_BYTES:,} bytes",
        )
    try:
        value = msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"the result {result[:60].decode(errors='replace')!r} is not JSON: {error}",
            hint="quote a text twice: --result '\"text\"'",
        ) from error
    if value is not None and finding != "happened":
        raise UsageError(
            "only an effect that happened has a result",
            hint="leave out the result, or say that it happened",
        )
    return msgspec.Raw(msgspec.json.encode(value))


def _require_doubt(store: Store, summary: Summary, effect: str) -> None:
    summary = summary_of(store, summary.run)
    shown = {each.id: each for each in show.open_effects(store, summary)}
    found = shown.get(effect) or next((e for e in show.effects(store, summary) if e.id == effect), None)
    if found is None:
        doubts = find.doubts(store, summary.state)
        known = ", ".join(f"{each.id} {each.name}" for _, each in doubts) or "none"
        raise UsageError(
            f"run {summary.run} has no effect {effect}; in doubt: {known}",
            hint=did_you_mean(
                effect, [each.id for _, each in doubts], f"`outlast effects {summary.run}` lists the effects"
            ),
        )
    if found.state == "open":
        raise UsageError(
            f"effect {effect} {found.name!r} is being performed right now",
            hint=f"wait for it; see `outlast effects {summary.run}`",
        )
    if found.state != "in_doubt" and not _has_failed(summary, found):
        by = f" by {found.settled_by}" if found.settled_by else " by its own outcome"
        fate = {"failed": "did not happen", "given_up": "given up"}.get(found.state, found.state)
        raise UsageError(
            f"effect {effect} {found.name!r} is settled already as {fate!r}{by}",
            hint=f"see `outlast effects {summary.run}`",
        )


def _has_failed(summary: Summary, effect: show.Effect) -> bool:
    """Whether an act of the open beat failed by its own word or a probe's. The beat asks again: a person may know more."""
    opened = summary.state.open_beat
    is_open = opened is not None and opened.beat == effect.beat and effect.policy != "tell"
    return is_open and effect.state == "failed" and effect.settled_by in ("", "probe")


# -- how an act reaches its run ----------------------------------------------------------------------------------------


def summary_of(store: Store, run: str) -> Summary:
    """The run with exactly this id."""
    found = [summary for summary in store.list(RunFilter(run_prefix=run)) if summary.run == run]
    if not found:
        raise UnknownRun(run)
    return found[0]


def root_of(store: Store, run: str) -> Summary:
    """The run itself, or the root that a child belongs to: acts go to the root."""
    summary = summary_of(store, run)
    return summary if summary.root == summary.run else summary_of(store, summary.root)


def standing(store: Store, run: str) -> Summary:
    """A root run with the budget that it has once its holder has taken in what waits for it, nothing of it counted twice."""
    waiting = store.inbox.pending(run)
    while True:
        summary = summary_of(store, run)
        still = store.inbox.pending(run)
        if {item.id for item in waiting} <= {item.id for item in still}:  # so none of it is in that head
            budget = inbox.budget_after(summary.state.budget, still)
            return msgspec.structs.replace(
                summary, state=msgspec.structs.replace(summary.state, budget=budget)
            )
        waiting = still


@contextmanager
def alone(store: Store, run: str, what: str) -> Iterator[None]:
    """Hold a lock so that one process at a time does this act on a run. Raises RunRefused if another holds it for too long."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.exclusive(run, what, wait_s=Timing.current().alone_wait_s))
        except StoreBusy as error:
            raise RunRefused(
                f"another act on run {run} is under way", hint="look at the run in a moment, then ask again"
            ) from error
        yield


def allow(state: st.RunState, status: st.Status, command: statuses.Command) -> st.Status:
    """The status that a command leads to. Raises RunRefused, with the hint, where it makes no sense."""
    verdict = statuses.after(status, command)
    if isinstance(verdict, statuses.Refusal):
        raise admission.refused(state, verdict)
    return verdict


@contextmanager
def claimed(store: Store, run: str) -> Iterator[Journal]:
    """The journal of a resting root run, written by us alone inside the block. Raises RunHeld."""
    lease = store.claim(run)
    try:
        journal = Journal(store, lease, reader.head(store, run))
        journal.load_open_beat("")
        yield journal
    finally:
        store.release(lease)


def bury(journal: Journal) -> None:
    """Record the end of an attempt that could not: while it is open, no wish takes hold."""
    if journal.state.attempt is not None:
        seen_s = journal.lease.last_seen_s
        _write(journal, attempts.lost(journal.state, journal.now(), last_seen_s=seen_s))


def ask(
    store: Store,
    run: str,
    command: statuses.Command,
    what: str,
    args: bytes = b"null",
    check: Callable[[], None] = lambda: None,
    *,
    by: str = "",
) -> Outcome:
    """Bring a request to the run if its status allows the command: into the inbox, or at once. Raises RunRefused.

    `check` has the last word before it is written.

    A living holder is asked through the inbox and takes the request in at its next beat or act. A resting run is claimed, changed
    and released here. A request is refused before anything is written, records who asked (`by`, else the user of this process),
    and may be repeated.
    """
    root = root_of(store, run)
    before = find.shown_status(store, root.state, root.run)
    after = allow(root.state, before, command)
    if before == "running":
        check()
        return _put(store, root, before, what, args, by)
    if (
        after == before
        and what not in ("budget", *_RELATIVE)
        and args == b"null"
        and not store.inbox.pending(root.run)
    ):
        return Outcome(run=root.run, task=root.task, before=before, status=before, changed=False)
    try:
        with claimed(store, root.run) as journal:
            drain(journal)
            allow(journal.state, find.status_if(store, journal.state, lives=False), command)
            bury(journal)
            check()
            take(journal, own_request(journal, what, args, by=by))
            status = find.status_if(store, journal.state, lives=False)
    except RunHeld:
        check()
        return _put(store, root, before, what, args, by)
    return Outcome(run=root.run, task=root.task, before=before, status=status)


def _put(store: Store, root: Summary, before: st.Status, what: str, args: bytes, by: str) -> Outcome:
    """Ask the living holder; what already waits is not asked twice."""
    waiting = () if what in _RELATIVE else store.inbox.pending(root.run)
    waits = any((item.what, item.args) == (what, args) for item in waiting)
    if not waits:
        store.inbox.put(root.run, by=by or settings.user_name(), what=what, args=args)
    return Outcome(
        run=root.run, task=root.task, before=before, status=before, in_inbox=True, changed=not waits
    )


def drain(journal: Journal) -> None:
    """Take in what was asked of an attempt that died before it could."""
    for request in journal.store.inbox.pending(journal.run):
        take(journal, request)


def own_request(journal: Journal, what: str, args: bytes = b"null", *, by: str = "") -> Request:
    """A request that never lay in the inbox: its id is 0."""
    return Request(0, journal.run, journal.now(), by or settings.user_name(), what, args)


def take(journal: Journal, request: Request) -> None:
    """Record a request and its effect, in one commit, on a run that no attempt has open."""
    bury(journal)
    blocking(journal, inbox.settle_child(journal, journal, request))
    events = (inbox.requested(request, journal), *inbox.effect_of(request, journal))
    journal.store.append(journal.batch(Append(events, takes=(request.id,) if request.id else ())))


def _write(journal: Journal, *events: ev.AnyEvent) -> None:
    journal.store.append(journal.batch(Append(events)))
