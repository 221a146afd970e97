"""gc, config, doctor: their command lines."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.cli.terminal.progress import working
from outlast.core.setting_values import addresses
from outlast.core.text import count_of
from outlast.inspect import doctor as doctors, doctor_all
from outlast.operations import repair as repairs
from outlast.operations.gc import runs as collector, saves, vaults
from outlast.store import credentials

NEEDS_PERSON = 3


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    command = commands.add_parser(
        "gc", help="forget old closed runs and thin their saves",
        description="Forget runs that are done, cancelled or handed off and have not changed for a while, and remove their\n"
        "payloads. One save of each such run stays; none if saves take more disk than the setting\n"
        "save_disk_budget_bytes. Secrets that no save names any more are removed. Open runs are never touched.",
        epilog="example: outlast gc --older-than 30d --dry-run",
    )  # fmt: skip
    command.add_argument(
        "--older-than", metavar="AGE", help="like 30d, 12h, 2w (default: the setting gc_older_than)"
    )
    command.add_argument("--dry-run", "-n", action="store_true", help="only print what would be forgotten")
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--move-saves", action="store_true",
        help="instead: move the saves that earlier versions put into repositories into the state folder",
    )  # fmt: skip
    what.add_argument(
        "--vaults",
        action="store_true",
        help="instead: list where saves are, and whether their repository is gone",
    )
    what.add_argument(
        "--remove-vault", metavar="VAULT", help="instead: remove the saves of a repository that is gone"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=gc)
    command = commands.add_parser(
        "config", help="every setting, its value, and where it comes from",
        description="Print every setting, its value and where it comes from. A flag wins, then OUTLAST_* in the environment, then\n"
        "outlast.toml of the repository, then your own config.toml, then the default.",
        epilog="example: outlast config",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=config)
    command = commands.add_parser(
        "doctor", help="check the store, its disk and its runs",
        description="Check the store, its disk and its runs, and print what to do. Exit code 3 if something needs a person.",
        epilog="example: outlast doctor --all",
    )  # fmt: skip
    command.add_argument(
        "--all", action="store_true",
        help="also read every event, payload and save, and look at permissions, the clock and the agents' versions",
    )  # fmt: skip
    command.add_argument(
        "--repair", action="store_true",
        help="put back what can be (heads, indexes, refs of saves, permissions), then look at everything",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(handler=doctor)


def gc(arguments: argparse.Namespace) -> None:
    """`outlast gc`"""
    if arguments.vaults or arguments.move_saves or arguments.remove_vault is not None:
        _vaults(arguments)
        return
    given = settings.load()["gc_older_than"] if arguments.older_than is None else arguments.older_than
    age = settings.age(given)
    now = datetime.now(UTC)
    terms = saves.Terms(
        older_than=age,
        now=now,
        budget_bytes=settings.load()["save_disk_budget_bytes"],
        dry_run=arguments.dry_run,
    )
    with store_option.opened(arguments) as store, working("collecting"):
        thinned = saves.thin(store, terms)  # first: once a run is forgotten, nothing says that it was closed
        done = collector.collect(store, age, now, dry_run=arguments.dry_run)
    if arguments.json:
        messages.say_json({**msgspec.structs.asdict(done), "saves": thinned})
        return
    for run, task in zip(done.runs, done.tasks, strict=True):
        messages.say(f"{run}  {messages.safe(task)}")
    would = "would be forgotten" if done.dry_run else "forgotten"
    messages.tell(f"runs {would}: {len(done.runs):,}; payloads removed: {done.blobs:,}")
    for run in done.spared:
        messages.tell(f"kept {run}: a process holds it, or it needs a look; see `outlast doctor`")
    _tell_thinned(thinned, dry_run=done.dry_run)


def _vaults(arguments: argparse.Namespace) -> None:
    """What `outlast gc` does with whole vaults."""
    local = store_option.location(arguments).local
    if arguments.remove_vault is not None:
        gone = vaults.remove(local, arguments.remove_vault, dry_run=arguments.dry_run)
        would = "would be removed" if arguments.dry_run else "removed"
        _answer(arguments, gone, [f"{would}: the saves of {_of(gone)}, {gone.bytes:,} bytes"])
    elif arguments.vaults:
        found = vaults.listed(local)
        _answer(arguments, found, [_line(each) for each in found])
    else:
        with store_option.opened(arguments) as store, working("moving saves"):
            moved = vaults.move_saves(local, vaults.known_runs(store), dry_run=arguments.dry_run)
        would = "would move" if arguments.dry_run else "moved"
        lines = [
            f"could not move the saves in {each.repository}: {each.failed}" if each.failed
            else f"{would} {each.refs:,} refs of saves from {each.repository} to {each.vault}{_left(each)}"
            for each in moved
        ]  # fmt: skip
        _answer(arguments, moved, lines or ["no saves of earlier versions were found"])


def _answer(arguments: argparse.Namespace, found: object, lines: list[str]) -> None:
    if arguments.json:
        messages.say_json(found)
        return
    for line in lines:
        messages.say(messages.safe(line))


def _left(moved: vaults.Moved) -> str:
    return f"; {moved.left:,} of runs that this store does not know stay there" if moved.left else ""


def _of(vault: vaults.Vault) -> str:
    return vault.repository or (vault.folders[-1] if vault.folders else "no folder")


def _line(vault: vaults.Vault) -> str:
    state = "   GONE" if vault.gone else ""
    return f"{Path(vault.vault).stem}  {_of(vault)}   {count_of(vault.runs, 'run')}   {vault.bytes:,} bytes{state}"


_WHY = {"over": "the run is closed", "old": "old, made by hand", "budget": "over save_disk_budget_bytes"}


def _tell_thinned(thinned: saves.Thinned, *, dry_run: bool) -> None:
    would = "would go" if dry_run else "gone"
    take, before = ("would take about", "now") if dry_run else ("take", "before")
    for each in thinned.runs:
        name = f"{each.run} of task {each.task}" if each.task else each.run
        left = f"; kept: {each.anchor[:12]}" if each.anchor else ""
        messages.tell(
            f"saves of {name} in {each.repository}: {each.removed:,} {would} ({_WHY[each.why]}){left}"
        )
    for room in thinned.rooms:
        if room.bytes_before != room.bytes_after:
            messages.tell(
                f"{room.repository}: saves {take} {room.bytes_after:,} bytes, {before} {room.bytes_before:,}"
            )
        if room.is_over:
            messages.tell(
                f"{room.repository}: saves {take} {room.bytes_after:,} bytes, and the setting save_disk_budget_bytes says"
                f" {room.budget_bytes:,}; the rest belongs to open runs or to you, or is younger than --older-than"
            )
    for folder, why in thinned.failed:
        messages.tell(f"could not look at the saves in {folder}: {why}")
    for cleared in thinned.secrets:
        if cleared.failed:
            messages.tell(f"kept the secrets of {cleared.workspace}: {cleared.failed}")
        else:
            messages.tell(
                f"secrets of {cleared.workspace} that no save names: {cleared.removed:,} {would}, {cleared.bytes:,} bytes"
            )


def config(arguments: argparse.Namespace) -> None:
    """`outlast config`"""
    found = list(map(_without_secret, settings.load(flags={"store": arguments.store}).all()))
    if arguments.json:
        messages.say_json(found)
        return
    rows = [[each.name, _value(each.value), each.origin, each.doc] for each in found]
    for line in messages.table([["SETTING", "VALUE", "FROM", "MEANING"], *rows]):
        messages.say(line)
    messages.tell(f"the store is {store_option.location(arguments).name}")


def _without_secret(each: settings.Setting) -> settings.Setting:
    """A setting as it is shown: the address of a notification channel is a password, and a store's may hold one."""
    if each.name == "store":
        return msgspec.structs.replace(each, value=credentials.shown(each.value))
    if not each.name.startswith("notify_") or not isinstance(each.value, str):
        return each
    return msgspec.structs.replace(each, value=addresses.without_path(each.value))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


def doctor(arguments: argparse.Namespace) -> int:
    """`outlast doctor`"""
    place = store_option.location(arguments)
    found = []
    if arguments.repair:
        with working("repairing"):
            found += [doctors.Finding("ok", "repaired", text) for text in repairs.repair(place)]
    whole = arguments.all or arguments.repair
    found += doctors.examine(place, whole=whole)
    if whole:
        with working("reading everything"):
            found += [each for each in doctor_all.examine_all(place) if each not in found]
    if arguments.repair:  # what it can put right it has put right
        left = {doctor_all.REPAIR: doctor_all.NOT_REPAIRED}
        found = [msgspec.structs.replace(each, hint=left.get(each.hint, each.hint)) for each in found]
    findings = [msgspec.structs.replace(each, hint=messages.pasteable(each.hint)) for each in found]
    if arguments.json:
        messages.say_json(findings)
    else:
        for finding in findings:
            hint = f"   ({finding.hint})" if finding.hint else ""
            level = "NEEDS A PERSON" if finding.level == "person" else finding.level
            messages.say(messages.safe(f"{level:<5} {finding.what}: {finding.text}{hint}"))
    return NEEDS_PERSON if doctors.needs_person(findings) else 0
