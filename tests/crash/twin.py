"""Two runs of one script compared by their journals: the one that was killed, and its twin that nobody killed."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.core import events as ev
from outlast.runs import reader
from outlast.store.protocol import Store, Summary


def dump(store: Store, summary: Summary) -> dict[str, Any]:
    """A run as its journal tells it."""

    def value(payload: ev.Payload | None) -> Any:
        return None if payload is None else _worded_once(reader.value_of(store, payload))

    told: dict[str, Any] = {"beats": [], "decided": {}, "effects": {}, "finished": None}
    for item in store.read(summary.run, after=0).events:
        match item.event:
            case ev.BeatDone() as e:
                refs = [(ref.name, ref.uri, ref.digest) for ref in e.remembered]
                told["beats"].append(
                    (e.beat, e.step, e.cursor, e.over, value(e.result), value(e.evidence), refs)
                )
            case ev.Decided() as e:
                told["decided"][e.beat, e.name, e.occurrence] = value(e.value)
            case ev.EffectIntended() as e:
                told["effects"][e.beat, e.n] = [e.name, e.occurrence, value(e.args), "intended", None]
            case ev.EffectConfirmed() as e:
                told["effects"][e.beat, e.n][3:] = ["confirmed", value(e.result)]
            case ev.EffectSettled() as e:
                found = "confirmed" if e.finding == "happened" else e.finding
                told["effects"][e.beat, e.n][3:] = [found, value(e.result)]
            case ev.EffectFailed() | ev.EffectInDoubt() as e:
                told["effects"][e.beat, e.n][3:] = [type(e).__name__, None]
            case ev.Finished() as e:
                told["finished"] = (value(e.result), [check.exit_code for check in e.checks])
    head = reader.head(store, summary.run)
    told["plan"] = msgspec.json.decode(msgspec.json.encode(reader.plan_of(store, head)))
    told["memory"] = [(ref.name, ref.uri, ref.digest) for ref in head.memory]
    told["head"] = (
        head.status,
        head.cause,
        head.beats,
        head.cursor,
        head.over,
        head.effects_total,
        head.open_beat,
    )
    return told


def _worded_once(value: Any) -> Any:
    """Without the number that tells how often the model was asked: before it is recorded, it may be asked again.

    And without the padding of an outcome: a person who settles knows only what the world says."""
    if isinstance(value, dict):
        return {name: _worded_once(inner) for name, inner in value.items() if name not in ("asked", "pad")}
    return [_worded_once(inner) for inner in value] if isinstance(value, list) else value


def difference(mine: dict[str, Any], twin: dict[str, Any]) -> str:
    lines = [f"runs: {sorted(mine)} against {sorted(twin)}"] if sorted(mine) != sorted(twin) else []
    for run in mine.keys() & twin.keys():
        for part, value in mine[run].items():
            if value != twin[run][part]:
                lines.append(
                    f"{run} {part}:\n  {value!r:.1500}\nnot as in the twin:\n  {twin[run][part]!r:.1500}"
                )
    return "\n".join(lines)
