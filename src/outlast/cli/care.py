"""Taking care: gc, config, doctor."""

import argparse
from datetime import UTC, datetime

from outlast import settings
from outlast.cli import place, terminal
from outlast.runs import doctor as doctors
from outlast.runs import gc as collector

NEEDS_PERSON = 3


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "gc", help="forget closed runs that rested for long",
        description="Forget runs that are done, cancelled or handed off and were not touched for a while, then\n"
        "remove payloads that nothing names any more. Open runs are never touched.",
        epilog="example: outlast gc --older-than 30d --dry-run",
    )  # fmt: skip
    command.add_argument(
        "--older-than", metavar="AGE", help="like 30d, 12h, 2w (default: setting gc_older_than)"
    )
    command.add_argument("--dry-run", "-n", action="store_true", help="only say what would be forgotten")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=gc)
    command = commands.add_parser(
        "config", help="every setting, its value, and where it comes from",
        description="Every setting in force and its origin: flag > OUTLAST_* > outlast.toml of the repository >\n"
        "your own config.toml > default.",
        epilog="example: outlast config",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=config)
    command = commands.add_parser(
        "doctor", help="is the store all right, and does a run need a person?",
        description="Look at the store, its disk and its runs. Exit code 3 when something needs a person.",
        epilog="example: outlast doctor",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(handler=doctor)


def gc(arguments: argparse.Namespace) -> None:
    """`outlast gc`"""
    age = collector.age(arguments.older_than or settings.load()["gc_older_than"])
    with place.opened(arguments) as store:
        done = collector.collect(store, age, datetime.now(UTC), dry_run=arguments.dry_run)
    if arguments.json:
        terminal.say_json(done)
        return
    for run, task in zip(done.runs, done.tasks, strict=True):
        terminal.say(f"{run}  {terminal.safe(task)}")
    would = "would be forgotten" if done.dry_run else "forgotten"
    terminal.tell(f"runs {would}: {len(done.runs):,}; payloads removed: {done.blobs:,}")
    for run in done.spared:
        terminal.tell(f"spared {run}: it is held, or needs a look; see `outlast doctor`")


def config(arguments: argparse.Namespace) -> None:
    """`outlast config`"""
    found = settings.load(flags={"store": arguments.store}).all()
    if arguments.json:
        terminal.say_json(found)
        return
    rows = [[each.name, _value(each.value), each.origin, each.doc] for each in found]
    for line in terminal.table([["SETTING", "VALUE", "FROM", "MEANING"], *rows]):
        terminal.say(line)
    terminal.tell(f"the store is {place.location(arguments)[1]}")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


def doctor(arguments: argparse.Namespace) -> int:
    """`outlast doctor`"""
    findings = doctors.examine(*place.location(arguments))
    if arguments.json:
        terminal.say_json(findings)
    else:
        for finding in findings:
            hint = f"   ({finding.hint})" if finding.hint else ""
            level = "NEEDS A PERSON" if finding.level == "person" else finding.level
            terminal.say(terminal.safe(f"{level:<5} {finding.what}: {finding.text}{hint}"))
    return NEEDS_PERSON if doctors.needs_person(findings) else 0
