"""Which channels the settings name. A repository's file may set none of them (`settings.KEYS`)."""

from typing import Protocol

from outlast.notifications.channels import command, desktop, ntfy, slack, webhook
from outlast.notifications.message import Message
from outlast.settings import Settings

PREFIXES = ("notify", "ui_url")  # of the settings that they read


class Channel(Protocol):
    """One way to a person."""

    @property
    def name(self) -> str:
        """As the settings and `outlast notify` call it."""
        ...

    def send(self, message: Message) -> str:
        """Send it, within the channel's time. Returns what the far side said. Raises Unsent."""
        ...


NAMES = (
    "ntfy",
    "slack",
    "webhook",
    "desktop",
    "command",
)  # in the order in which they are tried: a command may hang


def of(settings: Settings) -> list[Channel]:
    """The channels that are set. None is opened or checked yet."""
    found: list[Channel] = []
    if settings["notify_ntfy"]:
        found.append(ntfy.Ntfy(settings["notify_ntfy"], settings["notify_ntfy_token"]))
    if settings["notify_slack"]:
        found.append(slack.Slack(settings["notify_slack"]))
    if settings["notify_webhook"]:
        found.append(webhook.Webhook(settings["notify_webhook"], settings["notify_webhook_secret"]))
    if settings["notify_desktop"]:
        found.append(desktop.Desktop())
    if settings["notify"]:
        found.append(command.Command(settings["notify"]))
    return found
