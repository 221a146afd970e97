"""The first prompt of a resumed agent: a few lines in its own session, everything it must know in a fresh one."""

from collections.abc import Sequence

import msgspec

from outlast.agents.values import Cut
from outlast.core.secrets import mask
from outlast.core.text import call_words
from outlast.core.values import Contract, shorten
from outlast.supervisor.agent.session.choice import IN_DOUBT

CUT_SHOWN_MAX = 20
CALL_CHARS_MAX = 300
EVIDENCE_CHARS_MAX = 6_000


# To a session whose calls are given no result by us: what its own program says of one that it lost tells nothing.
UNNAMED = (
    "Any other call of yours that shows no result is not on record, so outlast did not let it through: make it if it is still "
    "needed."
)


def resumed(
    contract: Contract, cause: str, evidence: str, cuts: Sequence[Cut], settled: Sequence[str] = (), wrap_up: str = "",
    unnamed: str = "", approvals: Sequence[str] = (),
) -> str:  # fmt: skip
    """The prompt for a session that still knows its own work. `unnamed`: the words about calls that the prompt does not name."""
    lines = [_why(cause, evidence)]
    if cuts:
        lines += ["", "These calls of yours were under way:"]
        lines += [f"- {_call(cut)} ({cut.id}): {cut.text}" for cut in cuts[:CUT_SHOWN_MAX]]
    if settled:
        lines += ["", "What was not known of these calls of yours is settled:"]
        lines += [f"- {each}" for each in settled[-CUT_SHOWN_MAX:]]
    lines += _of_approvals(approvals)
    lines += ["", unnamed] if unnamed and len(cuts) <= CUT_SHOWN_MAX else []
    if wrap_up:
        return "\n".join([*lines, "", wrap_up])
    lines += ["", f"Go on with the task{': ' + contract.goal if contract.goal else ''}."]
    lines += [f"It is done only when this passes: {check}" for check in contract.checks]
    return "\n".join(lines)


def _call(cut: Cut) -> str:
    """Which call it was: its tool alone does not say that."""
    try:
        given = msgspec.json.decode(cut.input)
    except msgspec.MsgspecError:
        given = None
    return shorten(mask(call_words(cut.name, given))[0], CALL_CHARS_MAX)


def _why(cause: str, evidence: str) -> str:
    if cause in ("checks", "invariant"):
        return (
            f"You said that you were finished, but it is not done:\n{shorten(evidence, EVIDENCE_CHARS_MAX)}"
        )
    if cause == IN_DOUBT:
        return (
            "You had finished, but it was not known whether a call of yours had happened. You go on now. Your files are as "
            "you left them; nothing you started runs any more."
        )
    if cause == "person":
        return (
            "You had ended, and the run waited for a person. You go on now. Your files are as you left them; nothing you started "
            "runs any more."
        )
    if cause == "operator":
        return f"You go on now ({shorten(evidence, 300)}). Your files are as they were left; nothing you started runs any more."
    why = f" ({cause}{': ' + shorten(evidence, 300) if evidence else ''})" if cause else ""
    return f"You were interrupted{why} and go on now. Your files are as you left them; nothing you started runs any more."


def _of_approvals(approvals: Sequence[str]) -> list[str]:
    if not approvals:
        return []
    return ["", "What a person was asked for you:", *(f"- {each}" for each in approvals)]


def fresh(
    context: str, first_prompt: str, cuts: Sequence[Cut], settled: Sequence[str] = (), wrap_up: str = "",
    approvals: Sequence[str] = (),
) -> str:  # fmt: skip
    """The prompt for a session that knows nothing: another one did the work so far. `first_prompt`: the one given at the
    run's start."""
    lines = [
        "You take over a task that was begun before and interrupted. This is what is known of it.",
        "",
        context,
    ]
    if cuts:
        lines += ["", "# Calls that were cut off"]
        lines += [f"- {_call(cut)}: {cut.text}" for cut in cuts[:CUT_SHOWN_MAX]]
    if settled:
        lines += ["", "# Calls of which it was found out what became of them"]
        lines += [f"- {each}" for each in settled[-CUT_SHOWN_MAX:]]
    lines += _of_approvals(approvals)
    if first_prompt:
        lines += ["", "# What was asked for at the beginning", first_prompt]
    last = wrap_up or "Look at the files first; do not repeat what is done. Go on."
    return "\n".join([*lines, "", last])
