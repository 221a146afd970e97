"""When the lines of a log were written. A log has the time of day by the clock of whoever wrote it; its first line has the
day and the zone, and its file when it was written last.
"""

from collections.abc import Sequence
from datetime import datetime, time, timedelta

from outlast.supervisor.logreading import Span

BACK = timedelta(minutes=1)  # so much a clock is set back without that a day has passed
DAY = timedelta(days=1)


def moments(stamps: Sequence[str], span: Span) -> list[datetime | None]:
    """The moment of each time of day; None where there is none, or nobody knows the zone.

    They are found from the end: a time that is later than the one after it was of the day before.
    """
    if span.begun is None or span.written is None:
        return [None] * len(stamps)
    offset = span.begun.utcoffset() or timedelta()
    ours = span.begun.astimezone().utcoffset() == offset  # whoever wrote it had this machine's zone
    later = (span.written.astimezone() if ours else span.written.astimezone(span.begun.tzinfo)).replace(
        tzinfo=None
    )
    found: list[datetime | None] = []
    for stamp in reversed(stamps):
        try:
            at = datetime.combine(later.date(), time.fromisoformat(stamp))
        except ValueError:  # a line that we did not write
            found.append(None)
            continue
        at -= DAY if at > later + BACK else timedelta()
        later = at
        found.append(at.astimezone() if ours else at.replace(tzinfo=span.begun.tzinfo))
    return found[::-1]
