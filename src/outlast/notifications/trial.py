"""A notice to try the channels with, and how they stand: what `outlast notify` shows."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from outlast.notifications import channel_health, message, outbox, page_address
from outlast.notifications.channel_health import ChannelHealth
from outlast.notifications.channels import selection
from outlast.notifications.channels.selection import Channel
from outlast.notifications.links import Links
from outlast.notifications.notice import TEST, Notice
from outlast.notifications.post import Unsent
from outlast.settings import Settings
from outlast.store.local import Local

LINE = "outlast: this is a test. Notices of your runs arrive here."


class ChannelState(msgspec.Struct, frozen=True, kw_only=True):
    """A channel that is set. `outcome`: what became of a test just now; null without one."""

    channel: str
    dead: bool
    failures: int
    problem: str
    failed_at: datetime | None
    sent_at: datetime | None
    outcome: str | None = None


class Notifying(msgspec.Struct, frozen=True, kw_only=True):
    """How notices are sent: the channels, the quiet hours, how many wait, and where the page is reached from elsewhere."""

    channels: tuple[ChannelState, ...]
    quiet: str
    urgent: bool
    waiting: int
    page: str


def look(local: Local, settings: Settings) -> Notifying:
    """How everything stands. Sends nothing."""
    return _notifying(local, settings, selection.of(settings), {})


def send(local: Local, settings: Settings, chosen: Iterable[Channel]) -> Notifying:
    """Send a test on these channels, one after the other, once each, and record what became of it."""
    now = datetime.now(UTC)
    page = page_address.reachable(local, settings["ui_url"])
    notice = Notice(
        what=TEST, why="", run="", task="", project="", goal="", status="", cause=None, standing="", needs="nothing", beats=0,
        workspace=None, last_save=None, at=now, line=LINE, command="outlast notify",
    )  # fmt: skip
    whole = message.of(notice, page, Links(local), now)
    outcome, tried = dict[str, str](), list(chosen)
    for channel in tried:
        try:
            outcome[channel.name] = channel.send(whole)
        except Unsent as problem:
            outcome[channel.name] = str(problem)
            channel_health.failed(local, channel.name, str(problem), datetime.now(UTC))
        else:
            channel_health.sent(local, channel.name, datetime.now(UTC))
    return _notifying(local, settings, tried, outcome)


def _notifying(
    local: Local, settings: Settings, channels: Iterable[Channel], outcome: dict[str, str]
) -> Notifying:
    known = channel_health.read(local)
    return Notifying(
        channels=tuple(
            _state(known.get(each.name, ChannelHealth(channel=each.name)), outcome.get(each.name))
            for each in channels
        ),
        quiet=settings["notify_quiet"], urgent=settings["notify_urgent"], waiting=outbox.waiting(local),
        page=page_address.reachable(local, settings["ui_url"]),
    )  # fmt: skip


def _state(health: ChannelHealth, outcome: str | None) -> ChannelState:
    return ChannelState(
        channel=health.channel, dead=health.is_dead, failures=health.failures, problem=health.problem,
        failed_at=health.failed_at, sent_at=health.sent_at, outcome=outcome,
    )  # fmt: skip
