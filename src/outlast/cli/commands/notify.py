"""`outlast notify`: how the notification channels stand, and a test of them. The work is done in `outlast.notifications`."""

import argparse

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.core.text import did_you_mean
from outlast.errors import UsageError
from outlast.notifications import trial
from outlast.notifications.channels import selection
from outlast.notifications.trial import ChannelState, Notifying

EXIT_DEAD = 2
_ALL = ""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "notify", help="how you are notified, and a test of it",
        description="Show the channels on which outlast tells you what needs you (command, desktop, webhook, ntfy, Slack), and what\n"
        "became of the last notice on each. Your own config.toml names them, in [notify].",
        epilog="example: outlast notify --test\n         outlast notify --test ntfy\n"
        "exit codes with --test: 2 where a channel is dead",
    )  # fmt: skip
    command.add_argument(
        "--test",
        nargs="?",
        const=_ALL,
        metavar="CHANNEL",
        help="send a test on all channels, or on this one",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=notify)


def notify(arguments: argparse.Namespace) -> int:
    """`outlast notify`"""
    chosen = settings.load(flags={"store": arguments.store})
    local = store_option.location(arguments).local
    if arguments.test is None:
        found = trial.look(local, chosen)
    else:
        local.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = trial.send(local, chosen, _meant(arguments.test, selection.of(chosen)))
    if arguments.json:
        messages.say_json(found)
    else:
        _say(found)
    tested = arguments.test is not None
    return EXIT_DEAD if tested and any(each.dead for each in found.channels) else 0


def _meant(name: str, channels: list[selection.Channel]) -> list[selection.Channel]:
    """The channels that are to be tried. Raises UsageError."""
    hint = (
        f"set one in [notify] of {settings.user_folder() / 'config.toml'}: docs/notifications.md has examples"
    )
    if name and name not in selection.NAMES:
        known = f"the channels are {', '.join(selection.NAMES)}"
        raise UsageError(f"no such channel: {name:.60}", hint=did_you_mean(name, selection.NAMES) or known)
    found = [each for each in channels if name in (_ALL, each.name)]
    if not found:
        raise UsageError(f"the channel {name} is not set" if name else "no channel is set", hint=hint)
    return found


def _say(found: Notifying) -> None:
    if not found.channels:
        messages.tell(f"no channel is set: [notify] in {settings.user_folder() / 'config.toml'} names them")
    rows = [[each.channel, _stands(each), _words(each)] for each in found.channels]
    for line in messages.table(rows):
        messages.say(line)
    if found.quiet:
        passes = "; what needs a person passes" if found.urgent else ""
        messages.tell(f"quiet hours {found.quiet}{passes}")
    if found.waiting:
        messages.tell(
            f"{found.waiting:,} {'notice waits' if found.waiting == 1 else 'notices wait'} to be sent"
        )
    messages.tell(
        f"links lead to {found.page}"
        if found.page
        else "no link is sent: the page is not reached from elsewhere (ui_url)"
    )


def _stands(each: ChannelState) -> str:
    return "dead" if each.dead else "works" if each.sent_at is not None else "not tried"


def _words(each: ChannelState) -> str:
    if each.outcome is not None:
        return each.outcome
    if each.dead:
        times = f"{each.failures:,} times: " if each.failures > 1 else ""
        return f"{times}{each.problem}"
    return (
        f"last notice {each.sent_at:%Y-%m-%d %H:%M} UTC"
        if each.sent_at is not None
        else "`outlast notify --test` tries it"
    )
