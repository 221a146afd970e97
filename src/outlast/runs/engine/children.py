"""The child runs of a run's open beat: their spending, their effects in doubt, and which are open."""

from typing import TYPE_CHECKING

import msgspec

from outlast.core import state as st
from outlast.core.values import Usage
from outlast.errors import RunHeld
from outlast.runs import reader

if TYPE_CHECKING:
    from outlast.runs.engine.run import RunEngine


class Children:
    """The runs below a run. A root also knows which runs below it, at any depth, are open in this attempt."""

    def __init__(self, run: "RunEngine") -> None:
        self._run = run
        self._open: set[str] = set()
        self.may_exist = False  # in the open beat; where False, the store is not asked

    def heads(self) -> list[st.RunState]:
        """The child runs of the open beat."""
        return reader.children(self._run.journal.store, self._run.state) if self.may_exist else []

    def spent(self) -> Usage:
        """The spending of the open beat's children, which their parent's own sum does not have yet."""
        return reader.spent_below(self._run.journal.store, self._run.state) if self.may_exist else Usage()

    def head_with_spent(self) -> st.RunState:
        """The parent's head as if the open beat were done: what its children spent is spent."""
        head = self._run.state
        return msgspec.structs.replace(head, spent=head.spent.plus(self.spent()))

    def in_doubt(self) -> bool:
        """Whether an effect of a child is in doubt. Before the first beat an earlier attempt may have left some."""
        below = self.may_exist or self._run.beat is None
        return below and reader.in_doubt_below(self._run.journal.store, self._run.state)

    def enter(self, child: str) -> None:
        """Open a run below this root. Raises RunHeld where it is open already: a child has one writer too."""
        with self._run.journal.mutex:
            if child in self._open:
                holder = self._run.journal.lease.holder
                raise RunHeld(child, pid=holder.pid, host=holder.host, since="this attempt's beginning")
            self._open.add(child)

    def leave(self, child: str) -> None:
        """The run below is not open any more."""
        self._open.discard(child)
