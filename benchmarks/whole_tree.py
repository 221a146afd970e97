"""What a command and everything it starts costs: CPU and wall time, as a program of its own.

`python whole_tree.py RESULT WORD…`: orphans come to this process, so what a daemon below spends is counted too.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
AFTER_S = 20.0  # for what the command leaves behind, until it is killed


def main(result: str, words: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot take orphans")
    started = time.perf_counter()
    first = os.spawnvp(os.P_NOWAIT, words[0], words)
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    wall_s = time.perf_counter() - started
    reap_others()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(result, "w") as file:
        json.dump({"code": code, "wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime}, file)
    return 0


def reap_others() -> None:
    """Wait for what was left behind; its time counts when it is reaped."""
    until_s = time.monotonic() + AFTER_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if time.monotonic() > until_s:
            kill_children()
        time.sleep(0.01)


def kill_children() -> None:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        for pid in file.read().split():
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
