"""The command of an agent's hooks, and which of its calls reach outside. Its shims are in `shims.py`."""

import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from outlast import settings
from outlast.agents.outward import probes, rules
from outlast.agents.outward.classify import VARIABLES, Outward, ReadBack, classify, classify_argv
from outlast.core.secrets import mask_words
from outlast.errors import DidNotHappen, UsageError
from outlast.probes import CannotTell, Happened
from outlast.supervisor.agent.calls.record import CallRecord, OutwardCall
from outlast.supervisor.agent.calls.shims import OWN_CLASSES, Shims, classes_for, loopback_is_outward
from outlast.supervisor.client import copy
from outlast.supervisor.socket.wire import Shim

FACTS_AT_ONCE = 8
Finding = Happened | DidNotHappen | CannotTell


# Agents let a call pass when a hook ends with anything but 0 and 2, and a shell whose file is gone may end with 127.
_GUARDED = (
    'test -r "$0" && . "$0"; echo "outlast did not let this call through: its hook is gone, which was $0. This call was'
    ' not made now; the same one may be on record as made before. Work on without it, or stop." >&2; exit 2'
)  # no variable of its own: Gemini puts what the environment has in their place


def hook_words(client: Path, socket: str, mark: str, agent: str) -> tuple[str, ...]:
    """The command that an agent's hooks run. `client` is the run's own copy of that code."""
    classes = tuple(filter(None, [classes_for(client)]))
    script, python = str(client / copy.HOOK), copy.interpreter()
    return ("/bin/sh", "-c", _GUARDED, script, python, socket, mark, agent, *classes)


def own_classes() -> tuple[Mapping[str, object], ...]:
    """The user's own outward classes: the `[[outward]]` tables of their file. Raises UsageError if it cannot be read."""
    path = settings.user_folder() / OWN_CLASSES
    try:
        found = tuple(rules.tables(str(path)))
        if rules.LOOPBACK in found:
            raise ValueError("loopback is a setting, and stands in config.toml beside it")
        return found
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint=f"mend it, or move it away: {path}"
        ) from error


def known_kinds() -> frozenset[str]:
    """The classes of outward calls: ours and the user's own. Raises UsageError if their file cannot be read."""
    return frozenset(rule.kind for rule in rules.load(own_classes()).all)


class OutwardCalls:
    """Which calls reach outside, and what became of one that was cut off."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._since_s = time.monotonic()
        self.shims: Shims | None = None
        self._refreshing = threading.Lock()
        try:
            self.known = rules.load([*own_classes(), *([rules.LOOPBACK] if loopback_is_outward() else [])])
        except ValueError as error:
            path = settings.user_folder() / OWN_CLASSES
            raise UsageError(
                f"{path}: {error}", hint="docs/agents.md shows how such a table looks"
            ) from error

    def refresh_shims(self) -> None:
        """Make shims for programs installed since. If a shim cannot be written, the existing ones stay."""
        with self._refreshing, contextlib.suppress(OSError):
            if self.shims is not None:
                self.shims.refresh()

    def of_tool(self, tool: str, given: object, cwd: str) -> tuple[OutwardCall, ...]:
        """The outward acts of an agent's tool call."""
        return tuple(
            map(_masked_record, classify(tool, given, cwd, environment=self._environment, known=self.known))
        )

    def of_shim(self, shim: Shim) -> tuple[OutwardCall, ...]:
        """The same of a program that a shim stands before, with the variables that it would run with."""
        here = {name: value for name, value in self._environment.items() if name not in VARIABLES}
        here |= {name: value for name, value in shim.variables.items() if name in VARIABLES}
        found = classify_argv(
            shim.words, shim.cwd, environment=here, known=self.known, fed=shim.fed, sent=shim.sent
        )
        return tuple(map(_masked_record, found))

    def with_facts(self, call: CallRecord) -> CallRecord:
        """The call with the facts that a probe must know of the world before it."""
        if len(call.outward) < 2:
            outward = tuple(map(self._with_facts, call.outward))
        else:  # side by side: the caller waits no longer for many than for one
            with ThreadPoolExecutor(min(len(call.outward), FACTS_AT_ONCE)) as pool:
                outward = tuple(pool.map(self._with_facts, call.outward[:FACTS_AT_ONCE]))
        return msgspec.structs.replace(call, outward=(*outward, *call.outward[len(outward) :]))

    def _with_facts(self, each: OutwardCall) -> OutwardCall:
        return msgspec.structs.replace(each, facts=probes.facts(_outward(each), self._environment))

    def look(self, outside: OutwardCall) -> Finding:
        """Probe whether it happened. Its process was dead before this object was made.

        "It did not" counts only when the far side has had its time to finish what had reached it.
        """
        probe = probes.probe(_outward(outside), outside.facts, self._environment)
        if probe is None:
            return CannotTell("nothing can be read back of it")
        found: Finding = probe.look()
        wait_s = self._since_s + probe.settle_s - time.monotonic()
        if isinstance(found, DidNotHappen) and wait_s > 0:
            time.sleep(wait_s)
            found = probe.look()
        return found


def _outward(outside: OutwardCall) -> Outward:
    """The act in the form that the catalogue of probes takes."""
    probe = outside.probe
    read_back = ReadBack(str(probe["name"]), dict(probe["params"])) if probe else None
    return Outward(outside.kind, outside.signature, outside.words, outside.cwd, read_back)


def _masked_record(found: Outward) -> OutwardCall:
    """The record of this act, without the secrets in its words."""
    words = tuple(mask_words(found.words)[0])
    probe = {} if found.probe is None else {"name": found.probe.name, "params": _plain(found.probe.params)}
    return OutwardCall(
        str(found.kind), str(found.signature), words, str(found.cwd), probe,
        sure=found.sure, content=found.content, another=found.another, apart=found.apart,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """The same without the classifier's own kinds of text, which cannot be written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
