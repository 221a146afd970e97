"""Acts that are asked for once: the same form or key again does nothing again."""

import contextlib
import hashlib
import threading
from collections.abc import Callable

import msgspec

from outlast import decoders
from outlast.dashboard.documents import Done, Wish
from outlast.dashboard.timing import Timing
from outlast.errors import RunRefused, StoreBusy, StoreError
from outlast.runs import attempts
from outlast.store.protocol import Document, Shelf, ShelfKind

PRESSED: ShelfKind = "pressed"
RECORDS_MAX = 5_000
REFUSED_MAX = 1_000
NONCE_CHARS_MAX = 200
_SWEEP_EVERY = 64
_ROOM_BYTES = 4 << 10  # for the outcome: a disk that is full after the act must not take it away


class OnceOnly:
    """Outcomes by the nonce of their request, on a store's shelf: the newest 5,000 of a week.

    Each act has a document of its own, named by the digest of its nonce: the request, durable before anything is done, then the
    outcome. The acting page holds the document; others with the same nonce wait, also those of another page on the same store. An
    intent without an outcome is of a page that was killed while it acted: nobody knows what happened, so it is not done again.
    A refused act changed nothing, and leaves nothing.
    """

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.current()
        self._mutex = threading.Lock()
        self._unrecorded: dict[str, Done] = {}  # to be shown: what was refused, or could not be written down
        self._until_sweep = 0

    def once(self, shelf: Shelf, nonce: str, act: Callable[[], Done], wish: Wish) -> Done:
        """The outcome of the first call with this nonce; others wait for it.

        Raises RunRefused where the first was another wish, and StoreError where nothing can be written: then nothing was done.
        An act that broke down, which no bad input does, is of unknown outcome.
        """
        if not 0 < len(nonce) <= NONCE_CHARS_MAX:
            return act()
        intent = msgspec.json.encode(wish) + b"\n"
        with contextlib.ExitStack() as stack:
            try:
                self._sweep(shelf)
                wait_s = self._timing.pressed_wait_s
                held = stack.enter_context(shelf.hold(PRESSED, _name(nonce), wait_s=wait_s))
                earlier, done = _read(held.get())
                if earlier is not None:
                    return self._again(nonce, earlier, done, wish)
                held.put(intent, room=_ROOM_BYTES + len(intent))
            except StoreBusy as error:
                raise RunRefused(
                    "this act is under way already", hint="look at the run in a moment"
                ) from error
            except StoreError as error:
                raise StoreError(
                    f"the request could not be recorded, so nothing was done: {error}",
                    hint=f"{error.hint}, then ask again",
                ) from error
            return self._act(nonce, held, intent, act)

    def done(self, shelf: Shelf, nonce: str) -> Done | None:
        """The known outcome; None while the act is under way, or if nobody asked for it."""
        with self._mutex:
            shown = self._unrecorded.get(nonce)
        if shown is not None or not 0 < len(nonce) <= NONCE_CHARS_MAX:
            return shown
        try:
            earlier, done = _read(shelf.get_unheld(PRESSED, _name(nonce)))
        except StoreError:
            return None
        return done or (_unknown(earlier) if earlier is not None else None)

    def _again(self, nonce: str, earlier: Wish, done: Done | None, wish: Wish) -> Done:
        if earlier != wish:
            raise RunRefused(
                "this form or Idempotency-Key was already used for another request",
                hint=f"it asked to {earlier.act} run {earlier.run}; load the page again, or take another key, and ask again",
            )
        with self._mutex:
            shown = self._unrecorded.get(nonce)
        return done or shown or _unknown(earlier)

    def _act(self, nonce: str, held: Document, intent: bytes, act: Callable[[], Done]) -> Done:
        """Do it, and record the outcome. The act is done by then, so a failure to record it raises nothing."""
        done = act()
        is_recorded = done.ok or done.changed
        try:
            held.put(intent + msgspec.json.encode(done) + b"\n" if is_recorded else None)
        except StoreError:
            is_recorded = False
        with self._mutex:
            self._unrecorded.pop(nonce, None)
            if not is_recorded:
                self._unrecorded[nonce] = done
            while len(self._unrecorded) > REFUSED_MAX:
                del self._unrecorded[next(iter(self._unrecorded))]
        return done

    def _sweep(self, shelf: Shelf) -> None:
        """Remove records that are too old or too many, but none that is under way."""
        with self._mutex:
            self._until_sweep -= 1
            if self._until_sweep > 0:
                return
            self._until_sweep = _SWEEP_EVERY
        shelf.sweep(PRESSED, newest=RECORDS_MAX, older_than_s=self._timing.pressed_age_max_s)


def _name(nonce: str) -> str:
    return hashlib.sha256(nonce.encode("utf-8", "replace")).hexdigest()


def _read(data: bytes | None) -> tuple[Wish | None, Done | None]:
    """The request and its outcome. A torn record was never begun, or its outcome is unknown."""
    lines = (data or b"").split(b"\n")
    wish: Wish | None = None
    if len(lines) > 1:
        with contextlib.suppress(msgspec.MsgspecError):
            wish = decoders.decode(lines[0], Wish)
    if wish is None or len(lines) < 3:
        return wish, None
    try:
        return wish, decoders.decode(lines[1], Done)
    except msgspec.MsgspecError:
        return wish, None


def _unknown(wish: Wish) -> Done:
    """The outcome of an act whose process was killed or crashed while it acted."""
    return Done(
        wish=wish, at=attempts.now(), by="", ok=False, changed=False,
        says=f"This act ({wish.act}) was begun before, and its outcome is unknown; it is not done again.",
        hint="look at the run, then ask again", link=wish.run,
    )  # fmt: skip
