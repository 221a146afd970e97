"""The catalogue of probes: what an outward call in doubt left behind, read back from the world.
Probes are bounded in time and bytes, follow no redirect to another host, run no code of the project's, and never raise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from outlast.agents.outward.classify import Outward
from outlast.agents.outward.probes import forge, git, package_index
from outlast.agents.outward.probes.fetch import Deadline, Unreachable
from outlast.agents.timing import Timing
from outlast.probes import CannotTell, Finding, Probe

__all__ = ["facts", "look", "probe"]

Params = Mapping[str, str]
Environment = Mapping[str, str]
_Facts = Callable[[Params, Environment, Deadline], dict[str, object]]
_Look = Callable[[Params, Mapping[str, object], Environment, Deadline], Finding]


@dataclass(frozen=True, slots=True)
class _Entry:
    facts: _Facts
    look: _Look
    is_index: bool = False  # of packages: it takes longer than others until it tells the truth


def _nothing(params: Params, environment: Environment, deadline: Deadline) -> dict[str, object]:
    return {}


def _forge(name: str) -> _Entry:
    return _Entry(partial(forge.facts, name), partial(forge.look, name))


CATALOGUE: Mapping[str, _Entry] = {
    "git-push": _Entry(git.facts, git.look),
    "pr": _forge("pr"),
    "issue": _forge("issue"),
    "comment": _forge("comment"),
    "state": _forge("state"),
    "release": _forge("release"),
    "npm": _Entry(package_index.facts_npm, package_index.look_npm, is_index=True),
    "pypi": _Entry(package_index.facts_pypi, package_index.look_pypi, is_index=True),
    "cargo": _Entry(_nothing, package_index.look_cargo, is_index=True),
    "http-put": _Entry(package_index.facts_put, package_index.look_put),
    "http-delete": _Entry(package_index.facts_delete, package_index.look_delete),
}


def facts(outward: Outward, environment: Environment, *, timeout_s: float | None = None) -> dict[str, object]:
    """The facts from before the call that its probe needs; JSON, without secrets. Empty if there is no probe or no answer."""
    entry = CATALOGUE.get(outward.probe.name) if outward.probe else None
    if entry is None or outward.probe is None:
        return {}
    try:
        deadline = Deadline.after(Timing.current().facts_s if timeout_s is None else timeout_s)
        return entry.facts(outward.probe.params, environment, deadline)
    except (Unreachable, OSError, ValueError, KeyError):
        return {}


def look(
    outward: Outward,
    recorded: Mapping[str, object],
    environment: Environment,
    *,
    timeout_s: float | None = None,
) -> Finding:
    """Whether the call happened. A DidNotHappen counts only once the caller is dead and `probe(...).settle_s` passed."""
    entry = CATALOGUE.get(outward.probe.name) if outward.probe else None
    if entry is None or outward.probe is None:
        return CannotTell("there is no probe for it")
    try:
        deadline = Deadline.after(Timing.current().look_s if timeout_s is None else timeout_s)
        return entry.look(outward.probe.params, recorded, environment, deadline)
    except Unreachable as error:
        return CannotTell(str(error))
    except (OSError, ValueError, KeyError) as error:
        return CannotTell(f"the probe failed: {type(error).__name__}")


def probe(outward: Outward, recorded: Mapping[str, object], environment: Environment) -> Probe | None:
    """The probe as effects take one; None if the catalogue has none for this call."""
    entry = CATALOGUE.get(outward.probe.name) if outward.probe else None
    if entry is None:
        return None
    timing = Timing.current()
    settle_s = timing.index_settles_s if entry.is_index else timing.settles_s
    return Probe(partial(look, outward, recorded, environment), settle_s)
