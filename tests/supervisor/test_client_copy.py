"""What hooks and shims run is copied for a run: the copy is whole, private and goes with the run; without it they deny."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.agents.events import ToolEnd
from outlast.agents.outward import shims
from outlast.core import events as ev
from outlast.supervisor.agent import hook_input
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.client import copy as client_copy, hook as client_hook, shim
from tests.supervisor.hook_driver import MARK, POST, AttemptDies, before, hooked, minded
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.supervisor.test_notify import keep, notices
from tests.supervisor.upgraded import HOLD, Upgraded
from tests.support.environment import TIMEOUT_S, need_root, need_tool
from tests.support.processes import wait_for

# --- the copy itself --------------------------------------------------------------------------------------------------

# The state folder on a small disk of its own: a first run makes the store, then this much is left.
FULL = """
mount -t tmpfs -o size=6m none "$1" && "$2" -m outlast run --task x -- true || exit 99
head -c "$3" /dev/zero > "$1/spare"; cat /dev/zero > "$1/fill" 2> /dev/null; rm "$1/spare"
"$2" -m outlast run --task t -- "$4" -p x; code=$?
find "$1" -path '*/client/*' > "$5"
rm "$1/fill"
"$2" -m outlast run --task t -- "$4" -p x && exit $code
"""


@pytest.mark.parametrize("left_kib", [120, 180])
def test_a_disk_with_no_room_for_the_copy_starts_no_agent_and_keeps_nothing_of_it(
    host: Host, left_kib: int
) -> None:
    need_root()
    agent, left = Scripted(host), host.folder / "left"
    agent.says(agent.posting("one"))
    place = str(host.isolated.state_home)
    words = [place, sys.executable, str(left_kib << 10), str(agent.program), str(left)]
    done = subprocess.run(
        [need_tool("unshare"), "--mount", "sh", "-c", FULL, "sh", *words],
        cwd=agent.work, env=host.environ(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == 3, said
    assert re.search("is full(: nothing is begun)?; make room, then start again", said), said
    assert "unexpected" not in said
    assert left.read_text() == ""
    assert agent.performed() == ["one"], "when there was room"


def test_an_attempt_removes_what_a_kill_left_half_made_and_the_copies_of_another_outlast(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "client"
    copy = client_copy.place(folder)
    for name in (f".{copy.name}.1", f".{copy.name}.damaged.1", "0123456789abcdef"):
        (folder / name / "supervisor").mkdir(parents=True)
    (copy / client_copy.SHIM).write_text("")
    assert client_copy.place(folder) == copy
    assert list(folder.iterdir()) == [copy]
    assert (copy / client_copy.SHIM).read_bytes() == client_copy.contents()[client_copy.SHIM]


def test_the_copy_is_its_owners_alone(tmp_path: Path) -> None:
    before_mask = os.umask(0)
    try:
        copy = client_copy.place(tmp_path / "client")
    finally:
        os.umask(before_mask)
    modes = {path: path.stat().st_mode & 0o777 for path in (copy.parent, copy, *copy.rglob("*"))}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


NO_ROOM = (
    "sh",
    "-c",
    'ulimit -f 1; "$@"',
    "sh",
)  # as on a full disk: of a file the first bytes are written, then none


@pytest.mark.parametrize("python", ["ours", "another"])
def test_hooks_and_shims_that_ran_on_a_full_disk_work_when_there_is_room(tmp_path: Path, python: str) -> None:
    """Python keeps byte code that was cut off, and fails with it from then on."""
    copy = client_copy.place(tmp_path / "client")
    if python == "another":  # it was upgraded since, and looks for byte code by another name
        for path in copy.rglob("*.pyc"):
            path.rename(f"{path}.earlier")
    there = set(copy.rglob("*"))
    hook = outward.hook_words(copy, str(tmp_path / "nobody"), MARK, "claude")
    script = tmp_path / "shim"
    words = [client_copy.interpreter(), str(copy / client_copy.SHIM)]
    script.write_text(shims.shim_script("curl", "/bin/true", *words, given=("/nobody", MARK, "")))
    post = ("sh", str(script), "-d", "x", "http://host.test")
    for room in (NO_ROOM, ()):
        done = hooked([*room, *hook])
        assert done.returncode == 0, f"it is a local call: {done.stderr.decode()}"
        done = hooked([*room, *post])
        assert b"no supervisor listens on /nobody" in done.stderr
    assert set(copy.rglob("*")) == there, "they write nothing beside what they run"


def test_hooks_and_shims_find_their_byte_code(tmp_path: Path) -> None:
    copy = client_copy.place(tmp_path / "client")
    imports = "import sys; sys.path[:0] = sys.argv[1:]; import hook, shim, alone; alone.load(); import outlast.agents.outward.shims"
    folders = [str(copy / "supervisor/client"), str(copy / "agents/outward")]
    said = hooked(
        [client_copy.interpreter(), "-I", "-S", "-B", "-v", "-c", imports, *folders]
    ).stderr.decode()
    read = set(re.findall(f"# code object from '?{re.escape(str(copy))}/([^'\n]+)", said))
    assert read == {name for name in client_copy.contents() if name.endswith(".pyc")}


def test_byte_code_that_was_cut_off_is_damage_and_the_next_attempt_makes_it_anew(tmp_path: Path) -> None:
    copy = client_copy.place(tmp_path / "client")
    for path in copy.rglob("*.pyc"):
        os.truncate(path, 1000)
    assert ".pyc was changed" in client_copy.damage(copy.parent)
    client_copy.place(copy.parent)
    assert client_copy.damage(copy.parent) == ""


@pytest.mark.parametrize("ends", ["done", "cancelled"])
def test_a_run_that_is_over_holds_no_copy(upgraded: Upgraded, ends: str) -> None:
    upgraded.scripted.says(HOLD)
    process, folder = upgraded.start(), upgraded.host.root / "runs"
    assert list(folder.glob("*/client/*"))
    if ends == "done":
        upgraded.go_on()
    else:
        assert upgraded.host("cancel", "t", cwd=upgraded.scripted.work).code == 0
    process.wait(TIMEOUT_S)
    assert upgraded.host.status("t") == ends, upgraded.host.said("t")
    assert not list(folder.glob("*/client"))


# --- a hook denies where what it runs is gone, whichever shell is /bin/sh ---------------------------------------------


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
@pytest.mark.parametrize("gone", ["copy", "client", "python"])
def test_a_hook_without_its_files_denies_in_one_line(tmp_path: Path, shell: str, gone: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    (tmp_path / "sh").symlink_to(
        shutil.which(shell) or ""
    )  # named `sh`, each of them is as strict as it can be
    copy = client_copy.place(tmp_path / "client")
    words = list(outward.hook_words(copy, str(tmp_path / "nobody"), MARK, "claude"))
    words[0] = str(tmp_path / "sh")
    assert hooked(words).returncode == 0, "it is a local call, and its hook is whole"
    if gone == "python":
        words[words.index(client_copy.interpreter())] = str(tmp_path / "python")
    elif gone == "client":
        (copy / client_copy.HOOK).with_suffix(".py").unlink()
        shutil.rmtree((copy / client_copy.HOOK).with_name("__pycache__"), ignore_errors=True)
    else:
        shutil.rmtree(copy)
    done = hooked(words)
    assert done.returncode == client_hook.DENIED
    [line] = done.stderr.decode().splitlines()[-1:]
    assert hook_input.OURS.search(line), "the supervisor knows these words: such a call was not made"


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
@pytest.mark.parametrize("gone", ["client", "python"])
def test_a_shim_without_its_files_runs_nothing_that_may_reach_outside(
    tmp_path: Path, shell: str, gone: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    real = tmp_path / "curl"
    real.write_text(f"#!/bin/sh\necho done >> {tmp_path}/witness\n")
    real.chmod(0o755)
    needed = {"python": client_copy.interpreter(), "client": __file__} | {gone: str(tmp_path / "gone")}
    script = tmp_path / "shim"
    script.write_text(shims.shim_script("curl", str(real), needed["python"], needed["client"]))
    done = subprocess.run([shell, script, "-d", "x", "http://host.test"], capture_output=True, check=False)
    assert done.returncode == shim.REFUSED
    assert (
        done.stderr.decode()
        == f"outlast: `curl` was not run: it is not on record, for {tmp_path}/gone is gone\n"
    )
    assert not (tmp_path / "witness").exists()
    assert subprocess.run([shell, script, "http://host.test"], check=False).returncode == 0, "it only reads"
    assert (tmp_path / "witness").exists()


@pytest.mark.parametrize("left", [0.0, 0.5, 0.9, "all but its last line"])
def test_a_shim_whose_client_was_cut_off_runs_nothing_that_may_reach_outside(
    tmp_path: Path, left: float | str
) -> None:
    """Run as a program, an emptied file would exit with 0: the call would count as made."""
    client = client_copy.place(tmp_path / "client") / client_copy.SHIM
    whole = client.read_text()
    lines = whole.splitlines(keepends=True)
    kept = lines[:-1] if isinstance(left, str) else lines[: int(len(lines) * left)]
    client.write_text("".join(kept))
    script = tmp_path / "shim"
    words = [client_copy.interpreter(), str(client)]
    script.write_text(shims.shim_script("curl", "/bin/true", *words, given=("/nobody", MARK, "")))
    done = hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert done.returncode == shim.REFUSED
    assert (
        done.stderr.decode() == f"outlast: `curl` was not run: it is not on record, for {client} is damaged\n"
    )
    client.write_text(whole)
    done = hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert b"no supervisor listens on /nobody" in done.stderr


def test_a_shim_whose_classes_were_cut_off_asks_the_supervisor(tmp_path: Path) -> None:
    """A rule that is missing would let the call pass as one that stays here."""
    copy = client_copy.place(tmp_path / "client")
    classes = copy / "agents/outward/classes.toml"
    whole = classes.read_text()
    classes.write_text(whole[: whole.rindex("[[outward]]", 0, whole.index('"curl"'))])
    script = tmp_path / "shim"
    words = [client_copy.interpreter(), str(copy / client_copy.SHIM)]
    script.write_text(shims.shim_script("curl", "/bin/true", *words, given=("/nobody", MARK, "")))
    done = hooked(["sh", str(script), "-d", "x", "http://host.test"])
    assert done.returncode == shim.REFUSED
    assert b"no supervisor listens on /nobody" in done.stderr


def test_damage_is_seen_by_a_look_that_reads_only_what_has_changed(tmp_path: Path) -> None:
    placed, seen = client_copy.place(tmp_path / "client"), client_copy.Seen()
    assert client_copy.damage(placed.parent, seen) == ""
    assert seen
    file = placed / client_copy.SHIM
    data, times = file.read_bytes(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_bytes(data[:-1] + b"#")  # as long as before
    os.utime(file, ns=times)
    assert "was changed" in client_copy.damage(placed.parent, seen)
    file.write_bytes(data)
    assert client_copy.damage(placed.parent, seen) == ""
    file.unlink()
    assert "cannot be read" in client_copy.damage(placed.parent, seen)


# --- the copy itself is damaged while its agent lives -----------------------------------------------------------------


def _copied(folder: Path, name: str) -> Path:
    [path] = folder.glob(f"**/client/*/{name}")
    return path


def test_a_person_is_told_once_what_to_do_when_hooks_have_lost_what_they_run(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.start()
        shutil.rmtree(_copied(tmp_path / "store", client_copy.HOOK).parents[2])
        for call in ("call_1", "call_2"):
            assert there.allows(before("claude", POST, call))
            there.take(
                ToolEnd(
                    call,
                    False,
                    "outlast did not put this call on record: its hook is gone. Nothing was done.",
                )
            )
        [said] = [line for line in there.said if "denied" in line]
        run = there.run.id
        assert f"`outlast pause {run}`, then `outlast resume {run}`" in said
        [warned] = [event for event in there.run.journal.events("warned") if isinstance(event, ev.Warned)]
        assert warned.text == said
        raise AttemptDies


def test_a_copied_file_that_was_changed_is_noticed_at_the_end_of_the_beat(host: Host) -> None:
    place, agent = keep(host), Scripted(host)
    changed = f"{host.root}/runs/*/client/*/agents/outward/alone.py"
    agent.says(f"for file in {changed}; do sed -i '1a # more' $file; done", HOLD)
    process = agent.start()
    wait_for(lambda: (agent.work / "ready").exists() or None, what=f"the agent: {host.said('t')}")
    shown = host("show", "t", cwd=agent.work).out
    [line] = [line for line in shown.splitlines() if line.strip().startswith("denied ")]
    run = host.summary("t").run
    assert "alone.py was changed" in line
    assert f"`outlast pause {run}`, then `outlast resume {run}`" in line
    assert "alone.py was changed" in host("log", "t", cwd=agent.work).out
    (told,) = notices(place, 1)
    assert told["what"] == "needs a person"
    assert "alone.py was changed" in told["why"]
    (agent.work / "go").touch()
    assert process.wait(TIMEOUT_S) == 0, host.said("t")
    assert "denied " not in host("show", "t", cwd=agent.work).out
