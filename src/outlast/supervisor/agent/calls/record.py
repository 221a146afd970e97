"""The record of an agent's call in the journal: the arguments of its intent, and how to read them back."""

from typing import Any

import msgspec

from outlast import decoders
from outlast.agents.outward.rules import HELD, Another
from outlast.core import events as ev
from outlast.core.replay import EffectRecord
from outlast.runs.journal import Journal
from outlast.supervisor.socket.wire import Output

SHIM = "shim-"  # begins the key of what only a shim saw


class OutwardCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act of a call outside this host: verb and target, and what a probe needs to find out whether it happened."""

    kind: str
    signature: str
    words: tuple[str, ...] = ()
    cwd: str = ""
    probe: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    sure: bool = True  # exit code 0 of its program says that it happened
    content: str = (
        ""  # the digest of what it brings to its target; empty: not known, as in journals of before
    )
    another: Another = HELD  # what another content for the same target is
    apart: bool = False  # nobody waits for it: its call may end well before it has begun


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arguments of an agent call's intent.

    `answered`: outlast refused it and gave the outcome of that effect. `held`: outlast held it because that effect is in
    doubt. `asks`: it may repeat that effect; a person decides. `waits`: outlast did not let it through, because of that question
    to a person. `approved`: it was let through with the approval that answers that question.
    """

    tool: str
    input: Any = None
    lane: str = ""
    cwd: str = ""
    outward: tuple[OutwardCall, ...] = ()
    answered: str = ""
    held: str = ""
    asks: str = ""
    waits: str = ""
    approved: str = ""
    call: str = ""  # the agent's own id of the call, where the effect's key is another
    below: tuple[str, ...] = ()  # of what only a shim saw: the agent's calls that it may be part of
    steps: tuple[str, ...] = ()  # the steps of a script that it was made below

    @property
    def name(self) -> str:
        """Its name for a person: its target, else its tool."""
        return ", ".join(each.signature for each in self.outward) or self.tool


class EndedProgram(msgspec.Struct, frozen=True):
    """A program that ended with exit code 0: its outward acts, the effect that they belong to, and its output."""

    effect: str
    call: str  # the effect's key
    name: str
    outward: tuple[OutwardCall, ...]
    printed: Output


def call_record_of(journal: Journal, intent: ev.EffectIntended) -> CallRecord | None:
    """The record of an agent's call in an intent; None for any other intent."""
    try:
        return decoders.convert(journal.value(intent.args), CallRecord)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def has_result(record: EffectRecord) -> bool:
    """Whether the call ended with a result. A call that was only found to have happened has none."""
    return record.state == "confirmed" and (
        bool(record.result.blob) or bytes(record.result.v) not in (b"", b"null")
    )
