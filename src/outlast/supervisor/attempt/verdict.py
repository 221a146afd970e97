"""Judge why a command ended, and whether its run is done or an error says what comes next."""

import contextlib
import os
import signal
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from outlast import decoders
from outlast.agents.events import OWN_LIMITS, Final
from outlast.core import restarts
from outlast.core.state import RunState
from outlast.errors import AgentStopped
from outlast.processes.cause_of_death import Death, OomMark, of_status
from outlast.supervisor.launch.launch import Launch

if TYPE_CHECKING:
    from outlast.supervisor.agent.attempt import AgentAttempt
    from outlast.supervisor.budget.gateway import Gate


SETUP = "worktree setup"  # the step that an attempt begins with where there is one


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the command of an attempt ended. `final` is the reason that an agent, or its gateway, gave."""

    death: Death
    final: Final | None = None
    closed: str = ""  # why nobody reads its standard output any more

    @property
    def is_done(self) -> bool:
        """Whether it ended well."""
        return self.death.cause == "done"


def ending_of(
    status: int,
    tail: bytes,
    closed: str,
    launch: Launch,
    oom: OomMark,
    agent: "AgentAttempt | None",
    gate: "Gate | None",
) -> Ended:
    """Judge the end by the wait status and, for an agent, by its output: some agents exit with 0 after a failure."""
    if not os.WIFEXITED(status):
        return Ended(death=of_status(status, oom=oom), closed=closed)
    code = os.WEXITSTATUS(status)
    if agent is not None:
        if launch.interactive and code == 0:  # whatever its last words were, a person read them
            agent.look()
            return Ended(death=Death("done", "left by the person at the terminal", 0, None), closed=closed)
        final = agent.judge(code, tail)
        final = gate.judged(final) if gate is not None else final
        return Ended(death=_death(final, code), final=final, closed=closed)
    if gate is not None:
        final = gate.judged(Final("done" if code == 0 else "crashed"))
        if final.ending not in ("done", "crashed"):
            return Ended(death=_death(final, code), final=final, closed=closed)
    if code == 0:
        return Ended(death=Death("done", "exited with 0", 0, None), closed=closed)
    return Ended(death=of_status(status, oom=oom), closed=closed)


def _death(final: Final, code: int) -> Death:
    text = final.text or ("exited with 0" if final.ending == "done" else final.ending)
    if final.ending in OWN_LIMITS:
        text = f"{OWN_LIMITS[final.ending]}: {text}"
    return Death(final.cause, f"{text} (exit code {code})" if code else text, code, None)


def stopped(ended: Ended, launch: Launch, state: RunState, *, progress: bool, faults: str) -> AgentStopped:
    """The error for an end that is not done.

    Three kinds of command are not started again: an interactive one, whose end the person saw; one whose output nobody
    reads any more; and one with arguments that its agent does not understand. `faults`: the gateway's errors.
    """
    death, final = ended.death, ended.final
    wanted = launch.interactive or bool(ended.closed) or (final is not None and final.ending == "unusable")
    cause, reset_at = death.cause, final.reset_at if final is not None else None
    if final is not None and final.ending == "rate_limit":
        goes_on = progress or (state.attempt is not None and state.beats > state.attempt.beats)
        cause, reset_at = restarts.rate_limited(reset_at, datetime.now(UTC), state.past, progress=goes_on)
    error = AgentStopped(
        death.evidence + (f"; the gateway failed: {faults}" if faults else ""),
        cause=cause,
        exit_code=death.exit_code,
        progress=progress,
        wanted=wanted,
        reset_at=reset_at,
    )
    if ended.closed:
        error.exit_code = 128 + signal.SIGPIPE
    elif wanted and death.signal is not None:
        error.exit_code = 128 + death.signal
    return error


def blame_setup(error: AgentStopped, launch: Launch, state: RunState) -> None:
    """Name the setup of the worktree as the cause, if the setup has failed."""
    if launch.setup and _failed_step(state) == SETUP:
        error.args = (f"the setup of its worktree failed: {error}",)


def _failed_step(state: RunState) -> str:
    """The name of the step that ended the last beat of this attempt, if it failed."""
    began = state.attempt.beats if state.attempt is not None else state.beats
    with contextlib.suppress(msgspec.MsgspecError):
        last = state.recent[-1].text if state.beats > began else "{}"
        ended = decoders.decode(last, dict[str, str | int])
        return str(ended.get("step", "")) if ended.get("exit_code") else ""
    return ""
