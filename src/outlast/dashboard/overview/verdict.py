"""How all runs stand, in one sentence for a person who just woke up: the same on the page and in the terminal."""

from typing import Literal

from outlast.dashboard.documents import Overview, Row

Mood = Literal["mute", "good", "warn", "bad"]


def verdict(overview: Overview) -> tuple[str, Mood]:
    """Whether all is well, over all runs, and how bad it is if not."""
    needing, stranded, stuck = overview.needs_total, overview.stranded, overview.stuck
    if not overview.total:
        return "No runs yet", "mute"
    if needing:
        sentence = f"{needing:,} {'run needs' if needing == 1 else 'runs need'} you"
        more = f"{stranded:,} more {_stopped(overview)}"
        return f"{sentence}, {more}" if stranded else sentence, "bad"
    if stranded:
        return f"{_runs(stranded)} {_stopped(overview)}", "warn"
    if stuck:
        return f"{_runs(stuck)} {'is' if stuck == 1 else 'are'} stuck", "warn"
    return "All is well", "good"


def _runs(count: int) -> str:
    return f"{count:,} {'run' if count == 1 else 'runs'}"


def _stopped(overview: Overview) -> str:
    """How many stopped runs the service restarts at the next boot, and how many nothing restarts, in words."""
    count, at_boot = overview.stranded, overview.at_boot
    have, rest = "has" if count == 1 else "have", count - at_boot
    if not at_boot:
        return f"{have} stopped and {_stays(count)}"
    if not rest:
        return f"{have} stopped and will restart only at the next boot"
    return f"{have} stopped: {at_boot:,} will restart only at the next boot, {rest:,} {_stays(rest)}"


def _stays(count: int) -> str:
    return f"will not restart by {'itself' if count == 1 else 'themselves'}"


def quiet(row: Row) -> str:
    """The likely reason why a living agent does nothing; empty for one that does something."""
    match row.quiet:
        case "stuck":
            return "it lives and has done nothing for long: see its output; if it hangs, pause it, then resume it"
        case "idle":
            return (
                "it lives and has done nothing for some minutes, as in a long build or test; its output tells"
            )
        case "":
            return ""
