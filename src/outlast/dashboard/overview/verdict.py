"""How it stands, in one sentence for somebody who has just woken up: the same on the page and in the terminal."""

from typing import Literal

from outlast.dashboard.documents import Overview, Row

Mood = Literal["mute", "good", "warn", "bad"]


def verdict(overview: Overview) -> tuple[str, Mood]:
    """Whether all is well, over all runs, and how bad it is if not."""
    needing, stranded, stuck = overview.needs_total, overview.stranded, overview.stuck
    if not overview.total:
        return "No runs yet", "mute"
    if needing:
        told = f"{needing:,} {'run needs' if needing == 1 else 'runs need'} you"
        return f"{told}, {stranded:,} more stopped and {_nobody(stranded)}" if stranded else told, "bad"
    if stranded:
        return f"{_runs(stranded)} stopped, and {_nobody(stranded)}", "warn"
    if stuck:
        return f"{_runs(stuck)} {'is' if stuck == 1 else 'are'} stuck", "warn"
    return "All is well", "good"


def _runs(count: int) -> str:
    return f"{count:,} {'run' if count == 1 else 'runs'}"


def _nobody(count: int) -> str:
    return f"nobody starts {'it' if count == 1 else 'them'} again"


def quiet(row: Row) -> str:
    """What is to be thought of an agent that lives and does nothing; nothing of one that does something."""
    match row.quiet:
        case "stuck":
            return "it lives and has done nothing for long: see its output; if it hangs, pause it, then resume it"
        case "idle":
            return (
                "it lives and has done nothing for some minutes, as in a long build or test; its output tells"
            )
        case "":
            return ""
