"""All scripted tasks by name, and those with faults in the world: lost replies, errors after the act, delays."""

from outlast.chaos.tasks.plain import PLAIN
from outlast.chaos.tasks.script import Ask, Body, Do, Here, Impossible, Script, Task, WitnessFault, Write
from outlast.chaos.timing import Timing

_TIMING = Timing()  # the tasks are the same for everybody


def _post_keyed(here: Here) -> Body:
    text = yield Ask("text", f"text on {here.step}")
    return (yield Do("post", "keyed", {"text": text}))


def _post_probed(here: Here) -> Body:
    text = yield Ask("text", f"text on {here.step}")
    return (yield Do("post", "probed", {"text": text}))


def _post_blind(here: Here) -> Body:
    text = yield Ask("text", f"text on {here.step}")
    return (yield Do("post", "blind", {"text": text}))


def _book_with_retry(here: Here) -> Body:
    booked = yield Do("book", "keyed", {"room": here.step}, retry=1)
    yield Write(f"{here.step}.txt", booked["url"])
    return booked


def _pay_or_write(here: Here) -> Body:
    """A definite no is an outcome too: the body takes another way, and the same way when it is repeated."""
    try:
        yield Do("direct debit", "probed", {"for": here.step}, retry=1)
    except Impossible:
        yield Do("letter", "blind", {"about": here.step})
        return "wrote a letter"
    return "debited"


def _ship(here: Here) -> Body:
    label = yield Ask("label", f"label of {here.step}")
    yield Do("ship", "probed", {"label": label})
    yield Do("bill", "keyed", {"label": label})
    return label


def _late_keyed(here: Here) -> Body:
    return (yield Do("order", "keyed", {"item": here.step}, patience_s=_TIMING.patience_s))


def _late_probed(here: Here) -> Body:
    patience_s, settle_s = _TIMING.patience_s, _TIMING.late_settle_s
    return (yield Do("order", "probed", {"item": here.step}, patience_s=patience_s, settle_s=settle_s))


def _timed_out(here: Here) -> Body:
    timeout_s, settle_s = _TIMING.patience_s, _TIMING.late_settle_s
    return (yield Do("order", "probed", {"item": here.step}, timeout_s=timeout_s, settle_s=settle_s))


def _task(
    name: str, about: str, body: object, plan: list[str], *faults: WitnessFault, **terms: object
) -> Task:
    return Task(Script(name, body, plan), about, faults=faults, **terms)  # type: ignore[arg-type]


FAULTY: tuple[Task, ...] = (
    _task(
        "lost-reply-keyed",
        "done, but the reply is lost; reissued",
        _post_keyed,
        ["one", "two"],
        WitnessFault("post", "lose_reply"),
        style="drive",
    ),
    _task(
        "lost-reply-probed",
        "done, but the reply is lost; looked up",
        _post_probed,
        ["one", "two"],
        WitnessFault("post", "lose_reply"),
        style="async",
    ),
    _task(
        "lost-reply-blind",
        "done, but the reply is lost; only a person can tell",
        _post_blind,
        ["one", "two"],
        WitnessFault("post", "lose_reply"),
        style="drive",
    ),
    _task(
        "error-after-doing",
        "500, though it was done",
        _ship,
        ["parcel", "crate"],
        WitnessFault("ship", "error_after"),
        WitnessFault("bill", "error_after"),
        style="drive",
    ),
    _task(
        "error-before-doing",
        "500, and nothing was done",
        _ship,
        ["parcel"],
        WitnessFault("ship", "error_before"),
        WitnessFault("bill", "error_before"),
    ),
    _task(
        "refused-once",
        "a definite no, tried again under the same key",
        _book_with_retry,
        ["blue", "green"],
        WitnessFault("book", "refuse"),
    ),
    _task(
        "refused-for-good",
        "a definite no, so another way",
        _pay_or_write,
        ["rent", "gas"],
        WitnessFault("direct debit", "refuse", times=None),
    ),
    _task(
        "late-keyed",
        "done after the caller lost patience; reissued",
        _late_keyed,
        ["desk"],
        WitnessFault("order", "late", late_ms=_TIMING.late_ms),
    ),
    _task(
        "late-probed",
        "done after the caller lost patience; looked up when settled",
        _late_probed,
        ["lamp"],
        WitnessFault("order", "late", late_ms=_TIMING.late_ms),
    ),
    _task(
        "timed-out",
        "done in time, answered too late",
        _timed_out,
        ["chair"],
        WitnessFault("order", "late_reply", late_ms=_TIMING.late_ms),
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in (*PLAIN, *FAULTY)}
NOT_DONE = ("drop", "error_before", "refuse")  # modes in which a request leaves no trace
