"""Quiet hours: `22:00-07:00` by the clock of this machine. Which notices they hold is said in `delivery`."""

import re
from datetime import datetime, time, timedelta
from typing import NamedTuple

from outlast.errors import UsageError

_HOURS = re.compile(r"\s*([01]?[0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01]?[0-9]|2[0-3]):([0-5][0-9])\s*")


class QuietHours(NamedTuple):
    """From `begin` until just before `end`, over midnight where `end` is earlier."""

    begin: time
    end: time

    def holds(self, now: datetime) -> bool:
        """Whether a local time is within them."""
        clock = now.time()
        if self.begin <= self.end:
            return self.begin <= clock < self.end
        return clock >= self.begin or clock < self.end

    def ends(self, now: datetime) -> datetime:
        """The local time at which the quiet that holds now is over."""
        today = now.replace(hour=self.end.hour, minute=self.end.minute, second=0, microsecond=0)
        return today if today > now else today + timedelta(days=1)


def read(text: str) -> QuietHours | None:
    """The hours that a setting names; None for an empty one. Raises UsageError."""
    if not text.strip():
        return None
    found = _HOURS.fullmatch(text)
    if found is None:
        raise UsageError(f"not quiet hours: {text!r:.40}", hint="like 22:00-07:00, by this machine's clock")
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups())
    begin, end = time(begin_hour, begin_minute), time(end_hour, end_minute)
    if begin == end:
        raise UsageError(
            f"quiet hours of no length: {text!r:.40}", hint="like 22:00-07:00; leave it empty for none"
        )
    return QuietHours(begin, end)
