"""An agent that goes round in circles: the same call with the same result, or beat after beat with nothing new."""

from collections.abc import Hashable

WARNED_AT, STOPPED_AT = 5, 10
BEATS_MAX = 30
REMEMBERED_MAX = 10_000


class Stall:
    """Counts repetitions; everything new starts the count again.

    New is a state of the files that was not there before in this attempt, or a call that was not made before: an agent that
    reads files for the first time does not stand still.
    """

    def __init__(self, beats_max: int = BEATS_MAX) -> None:
        self._beats_max = beats_max  # 0: never
        self._trees: set[str] = set()
        self._calls: set[Hashable] = set()
        self._same: dict[Hashable, int] = {}
        self._new_call = False
        self._beats = 0

    def call(self, what: Hashable, result: Hashable) -> int:
        """Count a call that ended. Returns how often it had just this result since the files were last in a new state."""
        if what not in self._calls:
            self._calls.add(what)
            self._new_call = True
        if len(self._calls) > REMEMBERED_MAX or len(self._same) > REMEMBERED_MAX:
            self._calls.clear()
            self._same.clear()
        count = self._same.get((what, result), 0) + 1
        self._same[what, result] = count
        return count if self._beats_max else 0

    def beat(self, tree: str) -> bool:
        """Count a beat that ended with the files in this state (empty: unknown). Returns whether too many beats brought
        nothing new."""
        if tree and tree not in self._trees:
            self._trees.add(tree)
            self._same.clear()
            self._beats = 0
        elif self._new_call or not tree:
            self._beats = 0
        else:
            self._beats += 1
        self._new_call = False
        return bool(self._beats_max) and self._beats >= self._beats_max
