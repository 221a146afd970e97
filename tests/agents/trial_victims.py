"""Who is who among the processes of a trial: guardian, supervisor, agent, and what a call started."""

from __future__ import annotations

from outlast.processes import proc
from outlast.supervisor.launch import environment


class Victims:
    """Finds them by name. It remembers the supervisor, which outlives its guardian."""

    def __init__(self) -> None:
        self._supervisor: proc.Proc | None = None

    def find(self, names: tuple[str, ...], guardian: int, there: dict[int, proc.Proc]) -> list[int]:
        """Those of these names, among all that are there."""
        roles = self._roles(guardian, there)
        found: set[int] = set()
        for name in names:
            match name:
                case "all":
                    found |= set(there)
                case "agent group":
                    groups = {there[pid].pgid for pid in roles["agent"]}
                    found |= {pid for pid, each in there.items() if each.pgid in groups}
                case "outer group":
                    groups = {there[pid].pgid for pid in roles["guardian"]}
                    found |= {pid for pid, each in there.items() if each.pgid in groups}
                case _:
                    found |= set(roles[name])
        return sorted(found)

    def _roles(self, first: int, there: dict[int, proc.Proc]) -> dict[str, list[int]]:
        guardian = [pid for pid in (first,) if pid in there]
        below = [each for each in there.values() if each.ppid in guardian and not _marked(each.pid)]
        if below:
            self._supervisor = min(below, key=lambda each: each.start_ticks)
        known = self._supervisor
        lives = known is not None and known.pid in there and there[known.pid].identity == known.identity
        supervisor = [known.pid] if known is not None and lives else []
        agent = [pid for pid, each in there.items() if each.ppid in supervisor and _is_agent(pid)]
        return {"guardian": guardian, "supervisor": supervisor, "agent": agent}


def programs(name: str, there: dict[int, proc.Proc]) -> list[int]:
    """Those that make the request of this name."""
    return [pid for pid in there if _makes_it(proc.command(pid), name)]


def _makes_it(command: list[str], name: str) -> bool:
    return (
        bool(command) and command[0].endswith("curl") and any(word.endswith(f"/{name}") for word in command)
    )


def _marked(pid: int) -> bool:
    return proc.environ_value(pid, environment.ATTEMPT.encode()) is not None


def _is_agent(pid: int) -> bool:
    """Marked as one, or with an environment that it has overwritten; what works for the supervisor is neither."""
    return _marked(pid) or proc.environ_value(pid, b"HOME") is None
