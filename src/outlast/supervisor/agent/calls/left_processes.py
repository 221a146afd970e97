"""The processes that a call left behind when it returned: `nohup … &`, `( … ) &`, `setsid`. Only looks; stops nothing."""

import os

from outlast.processes import proc, reap
from outlast.processes.reap import Identity
from outlast.store.locks import boottime_s

Left = tuple[Identity, ...]


class LeftRunning:
    """Looks among the processes of one attempt. `agent` is the process that outlast started."""

    def __init__(self, run: str, agent: int) -> None:
        self._run, self._agent = run, agent
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    @staticmethod
    def now_s() -> float:
        """When a call begins, by the clock of process starts."""
        return boottime_s()

    def found(self, since_s: float) -> Left:
        """The processes that were started since then and are no longer below the agent: their parent has ended.

        Processes below the agent belong to the agent itself, such as a tool server or the hook that asks just now.
        """
        since = int(since_s * self._ticks_per_s)
        among = proc.all_processes()
        below = {self._agent, *proc.descendants(self._agent, among)}
        ours = reap.search(self._run, roots=[os.getpid()], spare={os.getppid()})
        return tuple(each.identity for each in ours if each.pid not in below and each.start_ticks >= since)

    def orphaned(self, above: Left) -> Left:
        """Those of a process and all above it that are below us and not below the agent, the oldest first. Empty where it is the
        agent's, or where not all of them are known."""
        pids = [pid for pid, _ in above]
        if self._agent in pids or os.getpid() not in pids:
            return ()
        return above[: pids.index(os.getpid())][::-1]

    def began_before(self, process: Identity, since_s: float) -> bool:
        """Whether a process is older than that."""
        return process[1] < int(since_s * self._ticks_per_s)

    @staticmethod
    def still(left: Left) -> Left:
        """The processes of `left` that still live, and the processes that they have started since."""
        known = set(left)
        among = [each for each in proc.all_processes().values() if not each.is_zombie]
        alive = {each.pid for each in among if each.identity in known}
        pids = {pid for pid, _ in left}
        first = min((ticks for _, ticks in left), default=0)
        more = [
            each.identity
            for each in among
            if each.identity not in known
            and each.start_ticks >= first
            and not pids.isdisjoint((each.ppid, each.pgid, each.sid))
        ]
        return (*(identity for identity in left if identity[0] in alive), *more)


def may_be_below(above: Left, other: Left) -> bool:
    """Whether a process may have been started by another one; each with those above it, the nearest first.

    One that a dead process left is adopted by us, and may be anybody's. Where both are still below the same child of ours,
    neither was.
    """
    if not above or not other or other[0] in above:
        return True
    first = _first_below_us(above)
    return first is None or first != _first_below_us(other)


def _first_below_us(above: Left) -> Identity | None:
    pids = [pid for pid, _ in above]
    at = pids.index(os.getpid()) if os.getpid() in pids else 0
    return above[at - 1] if at else None
