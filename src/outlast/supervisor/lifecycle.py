"""What the parts of an attempt tell whoever carries it."""

from typing import Protocol


class Lifecycle(Protocol):
    """Told of the turning points of an attempt, in the thread that met them."""

    def beat_ended(self) -> None:
        """A beat is over and on record; so is a change of what a script calls its work."""
