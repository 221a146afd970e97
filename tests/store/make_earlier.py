"""Makes `fixtures/<commit>/place.tar.xz`: what an earlier tree leaves of runs in several states, with their repositories; and
`imported.tar.xz`: of runs that it imported, which were started there or not.

git archive COMMIT src | tar x -C FOLDER; python -m tests.store.make_earlier FOLDER/src COMMIT [place | imported]
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
IMPORTED = ("begun", "taken", "brought")
CALLS = '["echo one >> steps", "echo two >> steps; touch ready; [ -e go ] || exec sleep 1000", "echo three >> steps"]'


def file_of(tree: str, name: str = "place") -> Path:
    return FIXTURES / tree / f"{name}.tar.xz"


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
        _make_repository(PLACE / task)
    variables = environ(PATH=f"{installed.folder / 'bin'}:/usr/bin:/bin")
    assert _start("done", variables, "--done", "true").wait() == 0
    for task in ("killed", "doubt", "session"):
        process = _start(task, variables, "--budget", "100k")
        wait_for(lambda task=task: (PLACE / task / "ready").exists() or None, what=task)
        _kill_everything()
        process.wait()
    assert _start("doubt", variables, "--budget", "100k").wait() == 3, "a person is needed"
    installed.remove()


def make_imported(source: Path) -> None:
    """Three runs that were killed: one begun here, one imported and started here, one imported and never started here.

    Each notes its name in `ran` when it runs, and ends once there is a file `go`.
    """
    shutil.rmtree(PLACE, ignore_errors=True)
    (PLACE / "home").mkdir(parents=True)
    installed = Installed(PLACE / "installed", source / "outlast")
    here = environ(PATH=f"{installed.folder / 'bin'}:/usr/bin:/bin")
    there = here | {"XDG_STATE_HOME": str(PLACE / "elsewhere")}
    for task in IMPORTED:
        text = f"echo {task} >> {PLACE}/ran\n[ -e {PLACE}/go ] || exec sleep 1000\n"
        _write(PLACE / f"{task}.sh", text)
        _make_repository(PLACE / task)
    for task in ("brought", "taken"):
        _killed_in(task, there, "run", "--task", task, "--", *words_of(task), cwd=PLACE / task)
        _outlast(there, "export", task, "-o", str(PLACE / f"{task}.tar.gz"), cwd=PLACE / task)
        _outlast(here, "import", str(PLACE / f"{task}.tar.gz"), cwd=PLACE / "home")
    _killed_in("taken", here, "resume", "taken", cwd=PLACE / "home")
    _killed_in("begun", here, "run", "--task", "begun", "--", *words_of("begun"), cwd=PLACE / "begun")
    installed.remove()
    shutil.rmtree(PLACE / "elsewhere")


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    script = "git init -q --template= -b main . && echo one > a.txt && git add -A && git commit -qm one"
    who = {
        f"GIT_{who}_{what}": "tester@example.invalid"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    subprocess.run(["sh", "-c", script], cwd=folder, env=environ(**who), check=True)


def _killed_in(task: str, variables: dict[str, str], *words: str, cwd: Path) -> None:
    """The command of a task has noted that it runs, and everything is killed."""
    before = _ran(task)
    process = _popen(variables, *words, cwd=cwd)
    wait_for(lambda: _ran(task) > before or None, what=task)
    _kill_everything(variables)
    process.wait()


def _ran(task: str) -> int:
    path = PLACE / "ran"
    return path.read_text().split().count(task) if path.exists() else 0


def _outlast(variables: dict[str, str], *words: str, cwd: Path) -> None:
    assert _popen(variables, *words, cwd=cwd).wait() == 0, words


def _start(task: str, variables: dict[str, str], *options: str) -> "subprocess.Popen[bytes]":
    words = ("run", "--task", task, *options, "--", *words_of(task))
    return _popen(variables, *words, cwd=PLACE / task)


def _popen(variables: dict[str, str], *words: str, cwd: Path) -> "subprocess.Popen[bytes]":
    program = shutil.which("outlast", path=variables["PATH"]) or "outlast"
    return subprocess.Popen(
        [program, *words], cwd=cwd, env=variables, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _kill_everything(variables: dict[str, str] | None = None) -> None:
    """All that has our variables, at one instant: stopped first, so that none acts on the death of another."""
    mark = f"XDG_STATE_HOME={(variables or environ())['XDG_STATE_HOME']}".encode()
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


def unpack(tree: str, name: str = "place") -> None:
    """The place as that tree left it."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    with tarfile.open(file_of(tree, name)) as archive:
        archive.extraction_filter = lambda member, _: (
            member
        )  # our own file; a Python before 3.11.4 has no filters
        archive.extractall(PLACE)


def main(source: str, tree: str, name: str = "place") -> None:
    target = file_of(tree, name)
    assert not target.exists(), f"{target} is there: a fixture is never made again"
    {"place": make, "imported": make_imported}[name](Path(source).resolve())
    pack(target)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main(*sys.argv[1:])
