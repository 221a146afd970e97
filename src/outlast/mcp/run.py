"""The run that this process belongs to, by its socket. A run that is gone, over or frozen is an answer, never a wait."""

import contextlib
import os
from pathlib import Path

import msgspec

from outlast import settings
from outlast.errors import OutlastError
from outlast.mcp.timing import Timing
from outlast.supervisor.launch import environment
from outlast.supervisor.socket import wire
from outlast.supervisor.socket.connection import Connection, Gone, connect

_GONE = (
    "nothing was recorded by this call. Its records and files are safe; outlast goes on with them at the next start. Go on with "
    "your work, and try again in a minute"
)


_AGAIN = "then ask the same again, in the same words and with the same choices: the answer is there"


class Refused(Exception):
    """The run says no, or there is none: one text for the agent, with what to do."""


def is_around() -> bool:
    """Whether this process was started inside a run."""
    return bool(settings.variable(environment.SOCKET) and settings.variable(environment.ATTEMPT))


class RunCall:
    """One call of a tool. Another thread may cut it off."""

    def __init__(self, tool: str, arguments: msgspec.Raw) -> None:
        self._tool, self._arguments = tool, arguments
        self._connection: Connection | None = None
        self.is_cut = False

    def cut(self) -> None:
        """Wait no longer for the answer. What the run was asked to put on record may be on record."""
        self.is_cut = True
        if self._connection is not None:
            self._connection.cut()

    def answer(self, timing: Timing) -> bytes:
        """The tool's result as JSON. Raises Refused."""
        limit_s = timing.save_s if self._tool == "save" else timing.answer_s
        message = wire.ToolCall(
            name=self._tool, arguments=self._arguments, attempt=settings.variable(environment.ATTEMPT)
        )
        try:
            there = self._connection = connect(settings.variable(environment.SOCKET), limit_s)
            try:
                if self.is_cut:
                    raise Refused("it was cancelled")
                there.send(message)
                answer = there.receive(limit_s=limit_s)
                if isinstance(answer, wire.Order) and answer.do == "wait":
                    return _wait_to_be_stopped(there, answer, timing.stopped_s)
                return _body(answer)
            finally:
                there.close()
        except Gone as error:
            raise Refused(f"the run does not answer: {error}\nhint: {_GONE}") from error
        except OutlastError as error:
            raise Refused(in_words(error)) from error


def _wait_to_be_stopped(there: Connection, order: wire.Order, limit_s: float) -> bytes:
    """Stay until the agent is stopped: it must not go on as if this had been refused. Raises Refused when the run let go of us."""
    with contextlib.suppress(Gone):
        there.receive(limit_s=limit_s)
    raise Refused(
        f"{order.reason}. You are stopped here, and go on when a person has answered\nhint: {_AGAIN}"
    )


def _body(answer: wire.AnyMessage) -> bytes:
    if isinstance(answer, wire.Order):
        raise Refused(f"{answer.reason}\nhint: {answer.hint}" if answer.hint else answer.reason)
    if not isinstance(answer, wire.Verdict):
        raise Refused("the run gave an answer that cannot be understood")
    if not answer.allowed:
        raise Refused(answer.reason)
    return bytes(answer.body)


def in_words(error: OutlastError) -> str:
    """An error as one text: what is wrong, and what to do."""
    return f"{error}\nhint: {error.hint}" if error.hint else str(error)


def as_uri(given: str) -> str:
    """Where something is, as the run records it: a path is one of a file, from this process's folder."""
    return given if "://" in given or given.startswith("file:") else f"file:{Path(os.path.abspath(given))}"
