"""Decides what to do about an effect, from its record and the facts. Pure: `runs/effects.py` carries the decision out.

An intent without an outcome is in doubt. See `decide` for when such an effect may be performed again."""

from collections.abc import Iterable

import msgspec

from outlast.core.events import Policy
from outlast.core.replay import EffectRecord
from outlast.core.text import did_you_mean
from outlast.core.values import Payload
from outlast.errors import UsageError

KEY_TTL_S = 24 * 3600
REISSUES_MAX = 2
POLICIES: tuple[Policy, ...] = ("reissue", "probe", "ask", "give_up")


class Facts(msgspec.Struct, frozen=True):
    """Facts beside the journal: what the caller offers, and whether the process that performed the act lives."""

    policy: Policy
    has_probe: bool
    retries: int = 0
    age_s: int | None = 0
    key_ttl_s: int = KEY_TTL_S
    performer_lives: bool = False
    reissued: int = 0
    probed: bool = False
    denied: int = 0  # how often the probe said "did not" in this call
    leftovers: str = ""  # processes that an earlier attempt's act started and that could not be stopped


class Perform(msgspec.Struct, frozen=True, tag=True):
    """Record an intent and perform the act."""


class Replay(msgspec.Struct, frozen=True, tag=True):
    """Return the recorded outcome."""

    result: Payload


class Fail(msgspec.Struct, frozen=True, tag=True):
    """Raise the recorded failure again."""

    error: str


class Reissue(msgspec.Struct, frozen=True, tag=True):
    """Perform again under the same key; the far side dedupes."""


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Ask the probe. Its "did not" counts only if the performer is dead."""

    did_not_counts: bool


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Ask a person: nobody else can settle this effect."""

    why: str


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """Record that the outcome stays unknown, and go on."""

    recorded: bool


Decision = Perform | Replay | Fail | Reissue | Probe | Ask | GiveUp


def policy_for(unknown: str | None, *, takes_key: bool, has_probe: bool) -> Policy:
    """The policy of an effect: what the caller asked for, else the best that the act's function allows."""
    if unknown is None:
        return "reissue" if takes_key else "probe" if has_probe else "ask"
    if unknown not in POLICIES:
        raise UsageError(
            f"no such policy: unknown={unknown!r}",
            hint=did_you_mean(unknown, POLICIES) or f"give one of {', '.join(POLICIES)}",
        )
    if unknown == "probe" and not has_probe:
        raise UsageError("unknown='probe' needs a probe=", hint="pass probe=FUNCTION, or unknown='ask'")
    return unknown


def decide(record: EffectRecord | None, facts: Facts) -> Decision:
    """What to do next about an effect.

    An effect in doubt is performed again only if the far side dedupes by key, a probe finds that it did not happen, or
    a person says so.
    """
    if record is None:
        return Perform()
    match record.state:
        case "confirmed":
            return Replay(record.result)
        case "given_up":
            return GiveUp(recorded=True)
        case "did_not" if facts.leftovers:
            return Ask(why=_why(record, facts))
        case (
            "did_not"
        ):  # however often in earlier attempts: a kill before the call is not a failure of the act
            again = facts.denied <= max(facts.retries, REISSUES_MAX)
            return Perform() if again else Fail(record.evidence or "a probe found nothing")
        case "failed":
            again = record.failures <= facts.retries and not record.final
            return Perform() if again else Fail(record.evidence)
        case "intended" | "in_doubt":
            return _settle(record, facts)


def _settle(record: EffectRecord, facts: Facts) -> Decision:
    can_reissue = facts.policy == "reissue" and facts.reissued < REISSUES_MAX and _key_is_young(facts)
    if can_reissue and not facts.leftovers:
        return Reissue()
    if facts.has_probe and not facts.probed:
        return Probe(did_not_counts=not (facts.performer_lives or facts.leftovers))
    if facts.policy == "give_up":
        return GiveUp(recorded=False)
    return Ask(_why(record, facts))


def _key_is_young(facts: Facts) -> bool:
    return facts.age_s is not None and 0 <= facts.age_s < facts.key_ttl_s


def _why(record: EffectRecord, facts: Facts) -> str:
    reasons = [record.evidence or "no outcome was recorded"]
    if facts.leftovers:
        reasons.append(f"it may still be under way in {facts.leftovers}")
    if facts.policy == "reissue" and not _key_is_young(facts):
        reasons.append("its key is too old to be reissued")
    if facts.probed:
        reasons.append("the probe could not tell")
    return "; ".join(reasons)


def missing_event(journal_last: int, marks: Iterable[int]) -> int | None:
    """The highest acknowledged event number that is missing from the journal, or None."""
    highest = max(marks, default=0)
    return highest if highest > journal_last else None


# -- Idempotency keys of effects. The format is frozen: one act has the same key in every attempt.


def effect_key(run: str, beat: int, name: str, occurrence: int) -> str:
    """`ol1_` + base32(blake2b-160) over run, beat, name and occurrence, each length-prefixed."""
    import base64
    import hashlib

    parts = (run.encode(), str(beat).encode(), name.encode(), str(occurrence).encode())
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return "ol1_" + base64.b32encode(hashlib.blake2b(framed, digest_size=20).digest()).decode().lower()
