"""What a store has to say to the person behind this process, and whether it waits on while it stays busy."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listener:
    """`waits_on` hears what is busy each time a store has been so for long, and says whether to wait on."""

    waits_on: Callable[[str], bool]
    say: Callable[[str], None]


_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """From now on, tell this one. Without a listener nobody waits, and nothing is said."""
    global _listener
    _listener = listener


def waits_on(words: str) -> bool:
    """Whether to wait on for a store that stays busy."""
    return _listener is not None and _listener.waits_on(words)


def say(words: str) -> None:
    """Tell the person."""
    if _listener is not None:
        _listener.say(words)
