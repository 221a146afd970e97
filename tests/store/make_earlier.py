"""Makes `fixtures/<commit>/place.tar.xz`: what an earlier tree leaves of runs in several states, with their repositories.

git archive COMMIT src | tar x -C FOLDER; python -m tests.store.make_earlier FOLDER/src COMMIT
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.supervisor import scripted_claude
from tests.supervisor.installed import Installed
from tests.support.processes import wait_for

PLACE = Path("/tmp/outlast-earlier")  # a fixture holds full paths, so it is made and opened in one place
FIXTURES = Path(__file__).with_name("fixtures")

# Where a task is held until it is killed; when `go` is there it runs through.
HOLD = "touch ready; [ -e go ] || exec sleep 1000"
KILLED = f"""
outlast step one -- sh -c 'echo one >> steps'
outlast step two -- sh -c 'echo two >> steps; {HOLD}'
outlast step three -- sh -c 'echo three >> steps'
"""
PAYING = f"outlast effect pay -- sh -c 'echo paid >> ledger; {HOLD}'\noutlast step after -- sh -c 'echo after >> steps'\n"
SAVING = "outlast step save -- sh -c 'echo two > a.txt; echo new > b.txt'\n"
SCRIPTS = {"done": SAVING, "killed": KILLED, "doubt": PAYING}
CALLS = '["echo one >> steps", "echo two >> steps; touch ready; [ -e go ] || exec sleep 1000", "echo three >> steps"]'


def file_of(tree: str) -> Path:
    return FIXTURES / tree / "place.tar.xz"


def environ(**more: str) -> dict[str, str]:
    """Leads to the place, and nowhere else."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    here = {"HOME": PLACE / "home", "XDG_STATE_HOME": PLACE / "state", "XDG_CONFIG_HOME": PLACE / "config"}
    known = {"PATH": path, "USER": "tester", "OUTLAST_RESTART_WAIT_S": "0.05", "PYTHONPATH": ""}
    return ours | known | {name: str(folder) for name, folder in here.items()} | more


def words_of(task: str) -> list[str]:
    """The command of a task."""
    if task == "session":
        return [str(PLACE / "agent" / "claude"), "-p", "do it"]
    return ["sh", str(PLACE / f"{task}.sh")]


def make(source: Path) -> None:
    """Runs in several states, each in a repository of its own name."""
    shutil.rmtree(PLACE, ignore_errors=True)
    for name in ("home", "agent"):
        (PLACE / name).mkdir(parents=True)
    installed = Installed(PLACE / "installed", source / "outlast")
    _write(
        PLACE / "agent" / "claude",
        "#!/usr/bin/env -S python3 -IS\n" + Path(scripted_claude.__file__).read_text(),
    )
    _write(PLACE / "agent" / "script", CALLS)
    for task, text in SCRIPTS.items():
        _write(PLACE / f"{task}.sh", f"set -eu\n{text}")
    for task in (*SCRIPTS, "session"):
        (PLACE / task).mkdir()
        script = "git init -q --template= -b main . && echo one > a.txt && git add -A && git commit -qm one"
        who = {
            f"GIT_{who}_{what}": "tester@example.invalid"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        subprocess.run(["sh", "-c", script], cwd=PLACE / task, env=environ(**who), check=True)
    variables = environ(PATH=f"{installed.folder / 'bin'}:/usr/bin:/bin")
    assert _start("done", variables, "--done", "true").wait() == 0
    for task in ("killed", "doubt", "session"):
        process = _start(task, variables, "--budget", "100k")
        wait_for(lambda task=task: (PLACE / task / "ready").exists() or None, what=task)
        _kill_everything()
        process.wait()
    assert _start("doubt", variables, "--budget", "100k").wait() == 3, "a person is needed"
    installed.remove()


def _start(task: str, variables: dict[str, str], *options: str) -> "subprocess.Popen[bytes]":
    words = ["outlast", "run", "--task", task, *options, "--", *words_of(task)]
    words[0] = shutil.which(words[0], path=variables["PATH"]) or words[0]
    return subprocess.Popen(
        words, cwd=PLACE / task, env=variables, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _kill_everything() -> None:
    """All that has our variables, at one instant: stopped first, so that none acts on the death of another."""
    mark = f"XDG_STATE_HOME={PLACE / 'state'}".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in sorted(pids, reverse=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def pack(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(PLACE.rglob("*")):
            if not path.is_socket() and not path.is_fifo():
                archive.add(path, path.relative_to(PLACE), recursive=False, filter=_nobodys)


def _nobodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def unpack(tree: str) -> None:
    """The place as that tree left it."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    with tarfile.open(file_of(tree)) as archive:
        archive.extraction_filter = lambda member, _: (
            member
        )  # our own file; a Python before 3.11.4 has no filters
        archive.extractall(PLACE)


def main(source: str, tree: str) -> None:
    target = file_of(tree)
    assert not target.exists(), f"{target} is there: a fixture is never made again"
    make(Path(source).resolve())
    pack(target)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main(*sys.argv[1:])
