"""The run behind a supervised command: requests to stop it wait until the command has been stopped."""

from outlast.effects.ops import Steps
from outlast.runs.run import Run
from outlast.runs.terms import Terms

STOPS = ("pause", "cancel", "handoff", "open", "kill")


class SupervisedRun(Run):
    """A run whose work is done by a command."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.may_stop = False
        self.typed = False  # somebody typed its line: one more attempt by their word

    def mail(self) -> Steps:
        """Everything but a stop is taken in at once, from any thread."""
        if self.may_stop or not self.asked_to_stop():
            yield from super().mail()

    def asked_to_stop(self) -> str:
        """What stop waits in the inbox, empty for none."""
        waiting = (request.what for request in self.journal.store.inbox.pending(self.id))
        return next((what for what in waiting if what in STOPS), "")
