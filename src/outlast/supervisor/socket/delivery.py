"""Whether an answer reached the process that asked. Until that process acknowledges it, as its last act, the answer counts as
not given."""

import contextlib
import fcntl
import os
import struct
import threading
import weakref
from typing import Final, Literal, Protocol

from outlast.supervisor.socket.connection import TAKEN

# The kernel's `struct pidfd_info` and the flag in its mask for how a process ended; Linux 6.15 and newer fill it in.
_INFO_BYTES: Final = 64
_GET_INFO: Final = 0xC0000000 | _INFO_BYTES << 16 | 0xFF << 8 | 11
_EXIT: Final = 1 << 3
_SIGNAL: Final = 0x7F  # the part of a wait status that tells which signal ended a process


class Asker(Protocol):
    """The other side of a connection on which an answer goes."""

    def is_there(self) -> bool: ...
    def process(self) -> int | None: ...
    def waiting(self) -> bytes | None: ...
    def wait(self) -> None: ...


class Delivery:
    """One answer, on its way to the process that asked for it.

    | that process                                   | `look`      |
    |------------------------------------------------|-------------|
    | lives, and has not acknowledged the answer      | "under_way" |
    | acknowledged it                                | "taken"     |
    | left without that, or was killed after it      | "lost"      |

    The kernel keeps an acknowledgement when it closes a dying process's connection, and closes that before the parent of the
    process goes on. So when the parent calls again, `look` finds "taken" or "lost". If the kernel does not report how a
    process ended, one that is killed between its acknowledgement and its exit counts as "taken".

    If `there` is None, or its side does not `acknowledge`, the answer counts as taken when it is sent.
    """

    def __init__(self, there: Asker | None = None, *, acknowledges: bool = False) -> None:
        self._there, self._lock = there, threading.Lock()
        self._state: Literal["under_way", "taken", "lost"] = "under_way"
        self._process: int | None = None  # a descriptor of the process, until its end is known
        if there is None or not acknowledges:
            self._state = "taken"
        elif (process := there.process()) is not None:
            self._process = process
            self._close = weakref.finalize(self, os.close, process)

    def is_there(self) -> bool:
        """Whether the other side still holds the connection. Any thread may call this."""
        return self._there is None or self._there.is_there()

    def look(self) -> Literal["under_way", "taken", "lost"]:
        """The state now. Any thread may call this, once the answer is about to be sent."""
        with self._lock:
            if self._state == "under_way" and self._there is not None:
                reply = self._there.waiting()
                self._state = "under_way" if reply is None else "taken" if reply == TAKEN else "lost"
            if self._state == "taken" and self._was_killed():
                self._state = "lost"
            return self._state

    @property
    def is_final(self) -> bool:
        """Whether another look can find nothing else."""
        return self._state == "lost" or (self._state == "taken" and self._process is None)

    def wait(self) -> None:
        """Wait until the other side has acknowledged the answer or has left. After that its connection may be closed."""
        if self._there is not None and self._state == "under_way":
            self._there.wait()
            self.look()

    def _was_killed(self) -> bool:
        """Whether the process is known to have died of a signal. Known once its parent has waited for it."""
        if self._process is None:
            return False
        info = bytearray(_INFO_BYTES)
        struct.pack_into("=Q", info, 0, _EXIT)
        status = 0
        with contextlib.suppress(OSError):  # an older kernel
            fcntl.ioctl(self._process, _GET_INFO, info)
            if not struct.unpack_from("=Q", info)[0] & _EXIT:
                return False
            status = struct.unpack_from("=i", info, _INFO_BYTES - 4)[0]
        self._process = None
        self._close()
        return bool(status & _SIGNAL)


DELIVERED: Final = Delivery()
