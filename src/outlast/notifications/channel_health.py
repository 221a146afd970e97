"""What became of the last notices on each channel: a small file in the state folder, read by page, `doctor` and `outlast notify`."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from outlast import decoders
from outlast.core.secrets import mask
from outlast.core.text import short
from outlast.store import durable
from outlast.store.local import Local

WORDS_CHARS_MAX = 300


class ChannelHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A channel's last notices. It is dead while `failures`, those since the last that arrived, is not 0."""

    channel: str
    failures: int = 0
    problem: str = ""
    failed_at: datetime | None = None
    sent_at: datetime | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the last notice did not arrive there."""
        return self.failures > 0


def read(local: Local) -> dict[str, ChannelHealth]:
    """By channel. What cannot be read is empty: the next notice writes it anew."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = decoders.decode(durable.read_plain(local.channels), list[ChannelHealth])
        return {each.channel: each for each in found}
    return {}


def dead(local: Local) -> tuple[ChannelHealth, ...]:
    """The channels on which the last notice did not arrive."""
    return tuple(each for each in read(local).values() if each.is_dead)


def sent(local: Local, channel: str, at: datetime) -> None:
    """A notice arrived there."""
    _change(local, channel, lambda was: ChannelHealth(channel=channel, sent_at=at, failed_at=was.failed_at))


def failed(local: Local, channel: str, problem: str, at: datetime) -> None:
    """A notice did not arrive there, after all tries."""
    words = short(mask(problem)[0], WORDS_CHARS_MAX)
    _change(
        local, channel,
        lambda was: msgspec.structs.replace(was, failures=was.failures + 1, problem=words, failed_at=at),
    )  # fmt: skip


def keep_only(local: Local, channels: set[str]) -> None:
    """Forget the channels that are no longer set: nothing is sent there."""
    if set(read(local)) - channels:
        with _locked(local):
            _write(local, {name: each for name, each in read(local).items() if name in channels})


def _change(local: Local, channel: str, change: Callable[[ChannelHealth], ChannelHealth]) -> None:
    """A full disk keeps no notice from being sent, so nothing is raised."""
    with contextlib.suppress(OSError), _locked(local):
        known = read(local)
        _write(local, known | {channel: change(known.get(channel, ChannelHealth(channel=channel)))})


def _write(local: Local, known: dict[str, ChannelHealth]) -> None:
    durable.replace_file(local.channels, msgspec.json.encode([known[name] for name in sorted(known)]))


@contextlib.contextmanager
def _locked(local: Local) -> Iterator[None]:
    fd = os.open(local.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
