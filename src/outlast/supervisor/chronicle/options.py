"""How somebody wants to be told what a run does, by flag or setting."""

import msgspec

from outlast.runs.engine.run import RunEngine
from outlast.supervisor.chronicle.chronicle import Chronicle
from outlast.supervisor.chronicle.json_lines import JsonFeed
from outlast.supervisor.launch import launch as supervisor_launch
from outlast.supervisor.launch.last_launch import known_agent
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.person import Person


class ChronicleOptions(msgspec.Struct, frozen=True):
    """What the command line says; the settings say the rest."""

    quiet: bool = False
    json_lines: str = ""


def chronicle_of(run: RunEngine, launch: Launch, person: Person, options: ChronicleOptions) -> Chronicle:
    """The chronicle of a run, which hears what it records. Raises UsageError if JSON lines cannot be written where they should."""
    person.quiet = person.quiet or options.quiet or run.settings["quiet"]
    where = options.json_lines or run.settings["json_lines"]
    feed = JsonFeed(where, supervisor_launch.known_secrets) if where else None
    chronicle = Chronicle(person, feed, has_agent=known_agent(launch) is not None)
    if chronicle.is_on:
        run.supervision.listener = chronicle.hear
    return chronicle
