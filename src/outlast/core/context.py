"""The context for a resumed agent, rendered from the journal: deterministic, and within a limit of tokens.

Pure: the caller gathers the parts. Contract, doubts and cursor are never cut; old results and the far plan are."""

import msgspec

from outlast.core.values import Contract, shorten

CHARS_PER_TOKEN = 3
TOKENS_MIN = 200
RESULTS_FULL = 5


class Result(msgspec.Struct, frozen=True):
    """A completed beat."""

    beat: int
    step: str
    text: str
    evidence: str = ""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a context can be made of."""

    contract: Contract
    run: str
    task: str
    beats: int
    plan: tuple[tuple[str, bool, bool], ...] = ()
    plan_total: int | None = None
    results: tuple[Result, ...] = ()
    effects_done: tuple[str, ...] = ()
    effects_in_doubt: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    budget: str = ""
    stage: str = ""


def tokens(text: str) -> int:
    """An upper estimate of a text's tokens."""
    return -(-len(text) // CHARS_PER_TOKEN)


def render(parts: Parts, tokens_max: int) -> str:
    """The context as text of at most `tokens_max` estimated tokens."""
    budget_chars = tokens_max * CHARS_PER_TOKEN
    sections = [section for section in _sections(parts, budget_chars // 2) if section[1]]
    chosen: dict[str, str] = {}
    for title, lines, keep_last in sorted(sections, key=lambda item: _RANK[item[0]]):
        room = budget_chars - sum(len(text) + 1 for text in chosen.values())
        text = _fit(title, lines, room, keep_last)
        if text:
            chosen[title] = text
    return "\n".join(chosen[title] for title, _, _ in sections if title in chosen)


_ORDER_OF_SACRIFICE = (
    "# Task",
    "# Effects in doubt",
    "# Failing checks",
    "# Budget",
    "# Where you are",
    "# Memory",
    "# Results so far",
    "# Effects done",
    "# Plan",
    "# Files",
    "# Commits since the start",
)
_NEVER_EMPTY = ("# Task", "# Effects in doubt", "# Failing checks")
_RANK = {name: rank for rank, name in enumerate(_ORDER_OF_SACRIFICE)}


def _sections(parts: Parts, goal_chars_max: int) -> list[tuple[str, list[str], bool]]:
    """Title, lines, and whether the last lines matter more than the first ones."""
    return [
        ("# Task", _task(parts, goal_chars_max), False),
        ("# Plan", _plan(parts), False),
        ("# Where you are", _where(parts), False),
        ("# Results so far", _results(parts), True),
        ("# Effects done", [f"- {line}" for line in parts.effects_done], True),
        ("# Effects in doubt", [f"- {line}" for line in parts.effects_in_doubt], False),
        ("# Memory", [f"- {line}" for line in parts.memory], False),
        ("# Files", [f"- {line}" for line in parts.files], True),
        ("# Failing checks", list(parts.failing), False),
        ("# Commits since the start", [f"- {line}" for line in parts.commits], True),
        ("# Budget", [parts.budget] if parts.budget else [], False),
    ]


def _task(parts: Parts, goal_chars_max: int) -> list[str]:
    lines = [f"Task {parts.task}: {shorten(parts.contract.goal, goal_chars_max) or '(no goal given)'}"]
    lines += [f"Done only when this passes: {check}" for check in parts.contract.checks]
    lines += [f"Must hold after every step: {invariant}" for invariant in parts.contract.invariants]
    return lines


def _plan(parts: Parts) -> list[str]:
    return [f"{'[x]' if done else '[>]' if here else '[ ]'} {name}" for name, done, here in parts.plan]


def _where(parts: Parts) -> list[str]:
    total = f" of {parts.plan_total}" if parts.plan_total is not None else ""
    one = parts.beats == 1 and not total
    done = (
        "1 beat is done; what follows it"
        if one
        else f"{parts.beats}{total} beats are done; what follows them"
    )
    lines = [f"{done} is yours to do."]
    lines += [f"[>] {shorten(name.strip(), 200)}" for name, _, here in parts.plan if here]
    if parts.stage:
        lines.append(f"Stage: {parts.stage}")
    return lines


def _results(parts: Parts) -> list[str]:
    lines = []
    for position, result in enumerate(parts.results):
        full = position >= len(parts.results) - RESULTS_FULL
        text = result.text if full else shorten(result.text, 120)
        evidence = (
            f"  (evidence: {result.evidence if full else shorten(result.evidence, 60)})"
            if result.evidence
            else ""
        )
        lines.append(f"- beat {result.beat} {result.step}: {text}{evidence}")
    return lines


def _fit(title: str, lines: list[str], room: int, keep_last: bool) -> str:
    """As many lines as fit, and a note of how many were left out."""
    whole = "\n".join([title, *lines, ""])
    if len(whole) <= room:
        return whole
    ordered = list(reversed(lines)) if keep_last else lines
    note = "(… {} more left out)"
    free = room - len(title) - len(note) - 12
    chosen: list[str] = []
    for line in ordered:
        if len(line) + 1 > free:
            break
        chosen.append(line)
        free -= len(line) + 1
    if not chosen and (title not in _NEVER_EMPTY or free < 40):
        return ""
    if not chosen:
        chosen = [shorten(ordered[0], free - 1)]
    left_out = note.format(len(lines) - len(chosen))
    body = [left_out, *reversed(chosen)] if keep_last else [*chosen, left_out]
    return "\n".join([title, *body, ""])
