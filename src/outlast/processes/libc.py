"""Two calls of the C library that Python does not offer: prctl and signalfd."""

import ctypes
import functools
import os
from collections.abc import Callable, Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_SIGSET_BYTES = 128


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def prctl() -> Callable[[int, int], int]:
    """The call, prepared for a forked child, where nothing may be loaded any more. It returns 0 or fails."""
    function = _library().prctl
    function.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]

    def call(option: int, value: int) -> int:
        return int(function(option, value, 0, 0, 0))

    return call


def signalfd(numbers: Iterable[int]) -> int:
    """A descriptor, non-blocking and closed at exec, from which these signals are read while they are blocked."""
    library = _library()
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    library.sigemptyset(mask)
    for number in numbers:
        library.sigaddset(mask, number)
    fd = int(library.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "signalfd failed")
    return fd
