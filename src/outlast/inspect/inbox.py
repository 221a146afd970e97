"""What was asked of a run and not taken in yet, as every list and page shows it. The words for it are in `dashboard/run/request_words.py`."""

from datetime import datetime

import msgspec


class PendingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `says` is what was asked for, in words."""

    what: str
    by: str
    at: datetime
    says: str
