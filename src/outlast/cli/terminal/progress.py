"""Progress of long work on stderr: seconds counted on a terminal, a line per minute elsewhere."""

import contextlib
import sys
import threading
from collections.abc import Iterator

from outlast.cli.terminal import messages
from outlast.cli.timing import Timing


@contextlib.contextmanager
def working(on: str) -> Iterator[None]:
    """Print on stderr what is being done while the block lasts, if it lasts long and a thread can be started."""
    ended = threading.Event()
    shown = sys.stderr.isatty()
    thread = threading.Thread(target=_tell, args=(messages.safe(on), ended, shown), daemon=True)
    started = False
    with contextlib.suppress(RuntimeError):  # no more threads for this user
        thread.start()
        started = True
    try:
        yield
    finally:
        ended.set()
        if started:
            thread.join()


def _tell(on: str, ended: threading.Event, shown: bool) -> None:
    timing = Timing.current()
    passed_s = timing.silent_s if shown else timing.line_every_s
    if ended.wait(passed_s):
        return
    while True:
        if shown:
            sys.stderr.write(f"\r{on} … {passed_s:.0f} s ")
            sys.stderr.flush()
        else:
            messages.tell(f"{on}: {passed_s / 60:.0f} min so far")
        step_s = timing.count_every_s if shown else timing.line_every_s
        if ended.wait(step_s):
            break
        passed_s += step_s
    if shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
