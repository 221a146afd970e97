"""The turning points of an attempt, as its parts report them to the attempt."""

from typing import Protocol


class Lifecycle(Protocol):
    """Hears of the turning points of an attempt, in the thread that met them."""

    def beat_ended(self) -> None:
        """A beat's end, or a new stage of a script, is on record."""
