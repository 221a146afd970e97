"""A call whose record took so long that whoever asked has left, and more calls at once than fit on record: refused alone."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from outlast.agents.events import ToolEnd
from outlast.core import events as ev
from outlast.core.state import EFFECTS_OPEN_MAX
from outlast.supervisor.socket.connection import Connection
from outlast.supervisor.socket.delivery import Delivery
from outlast.supervisor.socket.wire import REFUSED, Output, Shim, ShimAnswer
from outlast.supervisor.timing import Timing
from tests.supervisor.hook_driver import LOCAL, AttemptDies, before, is_denied
from tests.supervisor.test_shims import SURE, Below, below
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

POST = "curl -fsS -d {} http://192.0.2.1/same"
DENIED = (
    "outlast denied POST 192.0.2.1/same: its supervisor did not put the call on record (TimeoutError: timed out). "
    "This call was not made now; the same one may be on record as made before. Work on without it, or stop."
)


def asked(here: Below, content: str) -> Shim:
    return Shim(words=tuple(POST.format(content).split()), cwd=str(here.there.work))


# -- its record takes too long ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def leaving(here: Below) -> Iterator[Delivery]:
    """An answer to somebody who leaves while the next intent is flushed: a shim or a hook waits for 5 s."""
    ours, theirs = socket.socketpair()
    beats, append = here.there.beats, here.there.beats.append

    def slow(*events: ev.AnyEvent) -> None:
        append(*events)
        if isinstance(events[0], ev.EffectIntended):
            theirs.close()

    beats.append = slow  # type: ignore[method-assign]
    with ours, theirs:
        yield Delivery(Connection(ours), acknowledges=True)
        assert theirs.fileno() < 0, "an intent was recorded"
    beats.append = append  # type: ignore[method-assign]


def test_a_program_whose_shim_left_before_its_intent_was_durable_is_not_run_and_not_in_doubt(
    tmp_path: Path,
) -> None:
    ran: list[str] = []

    def perform() -> Output:
        ran.append("it ran")
        return Output(0)

    with below(tmp_path) as here:
        with leaving(here) as delivery:
            answer = here.there.attempt.hooks.shim(asked(here, "a"), perform, delivery)
        assert (answer.exit_code, ran) == (REFUSED, [])
        assert here.states() == []
        assert here.run(POST.format("a")).returncode == 0
        assert len(here.done) == 1
        raise AttemptDies


def test_a_call_whose_hook_left_before_its_intent_was_durable_is_not_in_doubt(tmp_path: Path) -> None:
    """Its hook denied it, and the agent tells so."""
    with below(tmp_path) as here:
        with leaving(here) as delivery:
            here.there.attempt.hooks.hook(before("claude", POST.format("a")), delivery)
        here.there.take(ToolEnd("call_1", False, DENIED))
        assert here.states() == []
        assert here.there.allows(before("claude", POST.format("a"), "call_2"))
        raise AttemptDies


# -- more at once than fit on record ---------------------------------------------------------------------------------


@contextlib.contextmanager
def many_under_way(here: Below) -> Iterator[threading.Event]:
    """As many programs as fit on record are under way, until one is let go, and then all."""
    one, rest = threading.Event(), threading.Event()
    began = threading.Semaphore(0)

    def run(number: int) -> None:
        def perform() -> Output:
            began.release()
            (rest if number else one).wait(TIMEOUT_S)
            return Output(0)

        here.there.attempt.hooks.shim(asked(here, f"n{number}"), perform)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(EFFECTS_OPEN_MAX)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            assert began.acquire(timeout=TIMEOUT_S)
        yield one
    finally:
        for event in (one, rest):
            event.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def test_a_call_that_does_not_fit_on_record_is_refused_alone(tmp_path: Path) -> None:
    with below(tmp_path, timing=Timing(shim_waits_s=0.05)) as here:
        with many_under_way(here):
            answer = here.there.attempt.hooks.shim(asked(here, "more"), lambda: Output(0))
            assert answer.exit_code == REFUSED
            assert f"{EFFECTS_OPEN_MAX} calls are under way or in doubt" in answer.reason
            assert is_denied(*here.there.ask(before("claude", POST.format("more"))))
            assert here.there.allows(before("claude", LOCAL, "call_2")), "what stays in here is not held up"
        assert here.there.attempt.failure is None
        assert here.states() == []
        assert here.run(POST.format("more")).returncode == 0
        raise AttemptDies


def test_a_program_waits_for_room_as_long_as_its_shim_waits(tmp_path: Path) -> None:
    answers: list[ShimAnswer] = []
    with below(tmp_path, timing=Timing(shim_waits_s=TIMEOUT_S)) as here:

        def more() -> None:
            answers.append(here.there.attempt.hooks.shim(asked(here, "more"), lambda: Output(0)))

        with many_under_way(here) as one:
            waiting = threading.Thread(target=more)
            waiting.start()
            one.set()
            wait_for(lambda: answers or None, what="room")
            waiting.join(TIMEOUT_S)
        assert answers == [ShimAnswer()]
        raise AttemptDies


# -- a hook that was killed with all that stood around its client ----------------------------------------------------


def test_a_denied_call_that_its_agent_makes_all_the_same_is_denied_by_its_shim(tmp_path: Path) -> None:
    """An agent lets a call pass when its hook was killed. The shim then knows that nobody read the denial."""
    with below(tmp_path) as here:
        assert here.run(SURE).returncode == 0
        raise AttemptDies
    with below(tmp_path) as here:
        assert not here.there.allows(before("claude", SURE))
        assert "happened before" in here.run(SURE).stderr
        assert len(here.done) == 1
        assert here.there.allows(before("claude", SURE, "call_2")), (
            "it was told by its shim: this is another one"
        )
        raise AttemptDies
