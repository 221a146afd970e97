"""How a supervised command that was recorded elsewhere is started here: in the run's folder, by the program that is here."""

import os
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

import msgspec

from outlast import decoders, settings
from outlast.core import events as ev
from outlast.core.values import Payload
from outlast.errors import OutlastError
from outlast.processes.programs import find_program
from outlast.workspace.types import raw, text


class Blobs(msgspec.Struct, frozen=True):
    """Reads and keeps payloads."""

    get: Callable[[str], bytes]
    put: Callable[[bytes], str]


def launched_here(event: ev.AnyEvent, was: str, now: str, blobs: Blobs) -> ev.AnyEvent:
    """The event with its launch moved from one workspace to the other; what cannot be read stays as it is."""
    if isinstance(event, ev.AttemptStarted) and event.host_id:
        event = msgspec.structs.replace(event, host_id="")  # the files come along
    if not isinstance(event, ev.AttemptStarted | ev.RunOpened) or event.launch is None:
        return event
    payload = event.launch
    try:
        data = blobs.get(payload.blob) if payload.blob else bytes(payload.v)
        launch = decoders.decode(data, dict[str, Any])
        moved = launch | _folder(launch, was, now)
        moved |= _program(moved)
    except (msgspec.MsgspecError, OutlastError, UnicodeError, ValueError, TypeError):
        return event
    if moved == launch:
        return event
    data = msgspec.json.encode(moved)
    stored = Payload(blob=blobs.put(data), size=len(data)) if payload.blob else Payload(v=msgspec.Raw(data))
    return msgspec.structs.replace(event, launch=stored)


def command_of(events: Iterable[ev.AnyEvent], blobs: Blobs) -> tuple[str, ...]:
    """The words of the command that a run is started with, as last recorded; empty for a program of somebody's own."""
    words: tuple[str, ...] = ()
    for event in events:
        if isinstance(event, ev.AttemptStarted | ev.RunOpened):
            words = _words(event.launch, blobs) if event.launch is not None else ()
    return words


def _words(payload: Payload, blobs: Blobs) -> tuple[str, ...]:
    data = blobs.get(payload.blob) if payload.blob else bytes(payload.v)
    try:
        launch = decoders.decode(data, _Command)
        return tuple(os.fsdecode(raw(word)) for word in launch.argv)
    except (msgspec.MsgspecError, UnicodeError, ValueError):
        return ()


class _Command(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]


def _folder(launch: dict[str, Any], was: str, now: str) -> dict[str, Any]:
    """Where it is started: the same place below the run's folder."""
    cwd = launch["cwd"]
    if not was or not now or not isinstance(cwd, str) or not PurePosixPath(cwd).is_relative_to(was):
        return {}
    below = PurePosixPath(now) / PurePosixPath(cwd).relative_to(was)
    return {"cwd": str(below if os.path.isdir(raw(str(below))) else PurePosixPath(now))}


def _program(launch: dict[str, Any]) -> dict[str, Any]:
    """Another machine may have its programs elsewhere: then the PATH of this one counts."""
    if os.path.exists(raw(launch["program"])):
        return {}
    here = {name: value for name, value in launch.get("environment", {}).items() if name != "PATH"}
    path = settings.environment(without="OUTLAST_").get("PATH", os.defpath)
    found = find_program(os.fsdecode(raw(launch["argv"][0])), path, os.fsdecode(raw(launch["cwd"])))
    return {"program": text(os.fsencode(found)), "environment": here}
