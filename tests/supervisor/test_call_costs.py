"""What a call of an agent costs besides itself, counted by strace: how often it waits for the disk and for what, and our gits."""

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.supervisor.hook_driver import AttemptDies, minded, write_session
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support import strace
from tests.support.environment import TIMEOUT_S, isolate, skip_or_fail

pytestmark = pytest.mark.strace

FEW, MANY = 6, 10  # the first beats look at everything, and begin to watch
OURS = '"core.fsmonitor=false"'  # what each git that outlast starts is told
JOURNAL = 2
CHANGE = {"journal": JOURNAL, "transcript": 1, "pack": 1, "index": 1, "packs": 1, "ref": 1, "refs": 1}
QUIET = {"journal": JOURNAL, "transcript": 1}
PLACES = (
    (r"/outlast\.db-wal$", "journal"), (r"/agent/claude-[^/]*\.jsonl$", "transcript"), (r"/blobs/[0-9a-f]{2}/", "payload"),
    (r"/blobs/[0-9a-f]{2}$", "its folder"), (r"/blobs$", "folder of a new folder"), (r"/objects/pack$", "packs"),
    (r"/objects/pack/tmp_outlast_\w+$", "pack"), (r"/objects/pack/tmp_outlast_\w+\.idx$", "index"),
    (r"/refs/outlast/.*beat", "ref"), (r"/refs/outlast/[^/]+$", "refs"),
)  # fmt: skip


@dataclass
class Cost:
    """Of a session, or of a call of it."""

    flushes: Counter[str]
    gits: Counter[str]

    def each(self, fewer: "Cost", calls: int) -> tuple[dict[str, float], dict[str, float]]:
        more = [
            {what: (count - old[what]) / calls for what, count in new.items() if count != old[what]}
            for new, old in ((self.flushes, fewer.flushes), (self.gits, fewer.gits))
        ]
        return more[0], more[1]


def session(scripted: Scripted, commands: list[str]) -> Cost:
    """One session of these calls under strace. No outcome waits for so long that it is recorded before its beat ends."""
    scripted.says(*commands)
    log = scripted.folder / "calls"
    traced = ",".join((*strace.SYNCS, "execve"))
    prefix = (
        "strace",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-qq",
        "-s",
        "300",
        "-e",
        f"trace={traced}",
        "-e",
        "signal=none",
    )
    host = scripted.host
    process = host.start(
        "t", str(scripted.program), "-p", "do it", within=(*prefix, "-o", str(log)),
        OUTLAST_TIMING="supervisor.outcome_s=60",
    )  # fmt: skip
    assert process.wait(TIMEOUT_S) == 0, host.said("t")
    return counted(log, host.folder)


def counted(log: Path, folder: Path) -> Cost:
    flushes, gits = Counter[str](), Counter[str]()
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r"\d+ +(\w+)\((.*)", line)
        if found is None:
            continue
        if found[1] != "execve":
            path = re.search(r"<([^>]*)>", found[2])
            if path is not None and path[1].startswith(str(folder)):
                flushes[what(path[1], folder)] += 1
        elif OURS in found[2] and "ENOENT" not in found[2]:
            words = re.findall(r'"([^"]*)"', found[2].partition("[")[2].partition("]")[0])
            gits[
                next(word for word in words[1:] if word != "-c" and not re.match(r"-|\w+(\.\w+)+=", word))
            ] += 1
    return Cost(flushes, gits)


def what(path: str, folder: Path) -> str:
    """What was flushed, by its name."""
    for pattern, word in PLACES:
        if re.search(pattern, path):
            return word
    return re.sub(
        r"(?<=/runs/)\w+|(?<=/outlast/)\w{12}\b|\d+T\d+Z|[0-9a-f]{12,}|(?<=\.outlast-)\w+",
        "ID",
        path.removeprefix(str(folder)),
    )


def each(tmp_path: Path, *commands: str) -> tuple[dict[str, float], dict[str, float]]:
    """The flushes and gits of each of these calls, made in turn, without those of a session's beginning and end."""
    if reason := strace.available():
        skip_or_fail(reason)
    costs = []
    for calls in (FEW, MANY):
        (tmp_path / str(calls)).mkdir()
        with Host(tmp_path / str(calls), isolate(tmp_path / str(calls))) as host:
            scripted = Scripted(host)
            costs.append(session(scripted, [commands[n % len(commands)].format(n) for n in range(calls)]))
    flushes, gits = costs[1].each(costs[0], (MANY - FEW) // len(commands))
    # On a loaded machine one note of a local call shares a commit with another event, or just misses it: one flush of a session.
    if abs(flushes.get("journal", 0) - JOURNAL) <= len(commands) / (MANY - FEW):
        flushes["journal"] = JOURNAL
    return flushes, gits


def test_a_call_with_its_save_has_eight_flushes_and_starts_no_git(tmp_path: Path) -> None:
    assert each(tmp_path, "echo {} >> notes.txt") == (CHANGE, {})


def test_a_call_that_changes_no_file_has_three_flushes_and_starts_no_git(tmp_path: Path) -> None:
    assert each(tmp_path, "echo {}") == (QUIET, {})


def test_a_payload_that_is_too_long_for_the_journal_has_two_flushes_more(tmp_path: Path) -> None:
    flushes, gits = each(tmp_path, f": {'x' * 5_000} {{}}")
    flushes.pop("folder of a new folder", None)  # once for each of the 256
    assert (flushes, gits) == (QUIET | {"payload": 1, "its folder": 1}, {})


def test_a_call_that_commits_costs_no_flush_more_and_the_agents_git_flushes_what_it_does_without_us(
    tmp_path: Path,
) -> None:
    """What it committed is in the save; `test_repository_powercut.py` shows that nothing more is needed."""
    flushes, gits = each(tmp_path, "echo {0} >> notes.txt; git add notes.txt; git commit -qm {0}")
    assert flushes == CHANGE
    assert gits == {"ls-files": 1, "write-tree": 1}


def test_a_call_that_makes_a_file_starts_one_git_which_says_whether_it_is_ignored(tmp_path: Path) -> None:
    assert each(tmp_path, "echo {0} > new{0}.txt") == (CHANGE, {"check-ignore": 1})


def test_lines_that_are_read_between_two_beats_wait_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with minded(tmp_path) as there:
        there.start()
        write_session(there)
        flushed: list[int] = []
        monkeypatch.setattr(os, "fsync", flushed.append)
        there.attempt.look()
        assert flushed == []
        assert list((tmp_path / "place/agent").glob("*.jsonl")), "they are in our copy"
        raise AttemptDies
