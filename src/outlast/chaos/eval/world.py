"""The world of one trial, as an attempt sees it: instants to be killed at, a model with a log, the witness.

Everything is measured outside outlast: in the model's fsynced log, in the notes, by the witness."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import outlast
from outlast.chaos.witness.client import Client, Refused

# The instants that every design passes, in the order of a beat. outlast adds its own crash points.
MARKS: dict[str, str] = {
    "process.start": "the process runs, nothing was read or written",
    "beat.begin": "the body of a beat begins",
    "decide.before": "the model is about to be asked",
    "model.answered": "the model answered, the body does not have the answer yet",
    "decide.after": "the body has the answer",
    "act.before": "the body is about to act",
    "act.sent": "the request is out, the reply is not read",
    "act.replied": "the reply is read, the body does not have it yet",
    "act.after": "the body has the outcome",
    "save.before": "the beat's work is done, its end is not saved",
    "save.after": "the beat's end is saved",
    "process.end": "the run was left, the process ends",
}


class Instants:
    """Counts the instants an attempt meets, and kills the process at one of them."""

    def __init__(self, folder: Path, kill_at: int | None) -> None:
        self._folder = folder
        self._kill_at = kill_at
        self._met: list[str] = []
        self._lock = threading.Lock()

    def met(self, name: str) -> None:
        """An instant. SIGKILL, so that nothing of this process runs afterwards."""
        with self._lock:
            self._met.append(name)
            if len(self._met) == self._kill_at:
                append_line(self._folder / "kills.jsonl", name, sync=False)
                os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        """Write down the instants of an attempt that was not killed."""
        append_line(self._folder / "instants.jsonl", self._met, sync=False)


def append_line(path: Path, value: object, *, sync: bool) -> None:
    """Append one line in one write: it survives this process; with `sync` also the machine."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(value, ensure_ascii=False).encode() + b"\n")
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def lines(path: Path) -> list[Any]:
    """The lines of such a file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def tag(decision: str, take: int) -> str:
    """The mark that an answer carries wherever it goes."""
    return f"⟨{decision}#{take}⟩"


class World:
    """The world that an attempt can touch. `trial` separates the trials at one witness."""

    def __init__(self, folder: Path, url: str, trial: str, instants: Instants) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.trial = trial
        self._instants = instants
        self._client = Client(url, on_sent=self._sent)
        self._sending = ""

    def mark(self, name: str) -> None:
        """An instant at which the attempt may be killed."""
        self._instants.met(name)

    def note(self, what: str, label: str) -> None:
        """Note something that the evaluation counts: begin, saved, sent; and `blind` before such an act is sent."""
        append_line(self.folder / "notes.jsonl", [what, label], sync=False)

    def begin(self, label: str) -> None:
        """The body of a beat begins."""
        self.note("begin", label)
        self.mark("beat.begin")

    def saved(self, label: str) -> None:
        """The beat's end is saved."""
        self.note("saved", label)
        self.mark("save.after")

    # -- the model -----------------------------------------------------------------------------------------------

    def ask(self, decision: str, about: str, size: int = 0, context: str = "") -> str:
        """The scripted model: the same question gets the same answer, worded differently each time."""
        log = self.folder / "model.jsonl"
        take = 1 + sum(line[0] == decision for line in lines(log))
        append_line(log, [decision, take, len(context)], sync=True)
        words = f"{about}: done with care, take {take}. {tag(decision, take)}"
        self.mark("model.answered")
        return words.rjust(size, "·")

    def ask_priced(self, decision: str, about: str, size: int = 0, context: str = "") -> outlast.Answer[str]:
        """Ask the scripted model; return the answer and its cost."""
        answer = self.ask(decision, about, size, context)
        return outlast.Answer(answer, outlast.Usage(input=len(context) // 4, output=len(answer) // 4))

    # -- outward acts --------------------------------------------------------------------------------------------

    def keyed(
        self,
        what: str,
        body: Any,
        identity: str,
        patience_s: float | None = None,
        *,
        idempotency_key: str,
    ) -> Any:
        """An act that the far side dedupes by key."""
        return self._act("keyed", what, body, identity, patience_s, key=idempotency_key)

    def probed(self, what: str, body: Any, identity: str, patience_s: float | None = None) -> Any:
        """An act that can be looked up afterwards."""
        return self._act("probed", what, body, identity, patience_s, marker=f"{self.trial} {identity}")

    def blind(self, what: str, body: Any, identity: str, patience_s: float | None = None) -> Any:
        """An act that its sender cannot look up."""
        return self._act("blind", what, body, identity, patience_s)

    def look(self, what: str, body: Any, identity: str, patience_s: float | None = None) -> Any:
        """The probe of a `probed` act."""
        found = self._client.find(f"{self.trial} {identity}")
        return outlast.DidNotHappen() if found is None else outlast.Happened(_trimmed(found))

    def _act(
        self,
        cls: str,
        what: str,
        body: Any,
        identity: str,
        patience_s: float | None,
        *,
        key: str | None = None,
        marker: str | None = None,
    ) -> Any:
        self._sending = what
        if cls == "blind":
            self.note("blind", what)
        limit = {} if patience_s is None else {"timeout_s": patience_s}
        name = f"{self.trial}.{what}"
        try:
            done = self._client.act(cls, name, body, key, marker=marker, identity=identity, **limit)
        except Refused as error:
            raise outlast.DidNotHappen(str(error)) from error
        self.mark("act.replied")
        return _trimmed(done)

    def _sent(self) -> None:
        self.note("sent", self._sending)
        self.mark("act.sent")


def _trimmed(result: dict[str, Any]) -> dict[str, Any]:
    return {"url": result["url"]}
