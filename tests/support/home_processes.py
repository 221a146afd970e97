"""The processes of one home: whoever was started with it in the environment, everything below them, and how all of them end."""

from __future__ import annotations

import os
from collections.abc import Collection

from outlast.processes import proc
from tests.support.environment import Isolated
from tests.support.processes import kill_at_once, wait_for


class HomeProcesses:
    """Finds them in /proc. It remembers whom it saw: some programs write their title over their variables."""

    def __init__(self, isolated: Isolated) -> None:
        self._home = os.fsencode(isolated.home)
        self._known: set[tuple[int, int]] = set()

    def alive(self, ours: Collection[int] = ()) -> dict[int, proc.Proc]:
        """All of them by pid, without zombies.

        A test may live in this home itself. Then its other children (the warm process, a witness) have the same
        variables and are left out; `ours` are the children that count.
        """
        marked = [pid for pid in _pids() if proc.environ_value(pid, b"HOME") == self._home]
        if not marked and not any(os.path.exists(f"/proc/{pid}") for pid, _ in self._known):
            return {}
        me = os.getpid()
        everyone = {pid: each for pid, each in proc.all_processes().items() if not each.is_zombie}
        found = {pid for pid, each in everyone.items() if each.identity in self._known}
        for pid in marked:
            if pid != me and pid in everyone and (everyone[pid].ppid != me or pid in ours):
                found.add(pid)
        for pid in list(found):
            found |= proc.descendants(pid, everyone)
        self._known |= {everyone[pid].identity for pid in found}
        return {pid: everyone[pid] for pid in found}

    def kill(self, ours: Collection[int] = ()) -> None:
        """-9 until none is left: one that was just forked is found the next time."""

        def none_left() -> bool:
            left = list(self.alive(ours))
            kill_at_once(left)
            return not left

        wait_for(none_left, what="the end of every process of a home")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
