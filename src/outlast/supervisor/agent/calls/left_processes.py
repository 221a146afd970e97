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
        """Those that were started since then and are not below the agent any more: their parent has ended, they have not.

        What is below the agent is its own, such as a tool server or the hook that is asking just now.
        """
        since = int(since_s * self._ticks_per_s)
        among = proc.all_processes()
        below = {self._agent, *proc.descendants(self._agent, among)}
        ours = reap.search(self._run, roots=[os.getpid()], spare={os.getppid()})
        return tuple(each.identity for each in ours if each.pid not in below and each.start_ticks >= since)

    @staticmethod
    def still(left: Left) -> Left:
        """Those of them that live, and what they have started since."""
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
