"""Going on at boot with nobody there: the unit, the cron line, what is said of them, and a real boot in a bare environment."""

import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast.core import events as ev
from outlast.supervisor.control import service_units
from outlast.supervisor.control.service_units import Boot
from tests.supervisor.host import Host
from tests.support.commands import Answer
from tests.support.environment import TIMEOUT_S, need_root, need_tool
from tests.support.processes import wait_for

USER = pwd.getpwuid(os.getuid()).pw_name

# Programs of the system, scripted: they keep what they are told in files, and can be told to refuse.
SYSTEMCTL = """#!/bin/sh
case "$2" in
  show-environment) exit 0 ;;
  enable) touch "$STAND_IN/enabled" ;;
  disable) rm -f "$STAND_IN/enabled" ;;
  is-enabled) [ -e "$STAND_IN/enabled" ] && echo enabled || echo disabled ;;
esac
"""
LOGINCTL = """#!/bin/sh
case "$1" in
  enable-linger) [ -e "$STAND_IN/refuses" ] && exit 1; touch "$STAND_IN/lingers" ;;
  disable-linger) rm -f "$STAND_IN/lingers" ;;
  show-user) [ -e "$STAND_IN/lingers" ] && echo yes || echo no ;;
esac
"""
CRONTAB = """#!/bin/sh
case "$1" in
  -l) cat "$STAND_IN/table" 2>/dev/null || exit 1 ;;
  -r) rm -f "$STAND_IN/table" ;;
  -) cat > "$STAND_IN/table" ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A host whose systemd, logind and cron are scripted, or not there."""

    host: Host
    folder: Path

    def has(self, **programs: str) -> None:
        for name, text in programs.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def __call__(self, *words: str) -> Answer:
        path = f"{self.folder}:{self.host.folder / 'tools'}"
        return self.host("service", *words, PATH=path, STAND_IN=str(self.folder))

    @property
    def unit(self) -> Path:
        return self.host.isolated.home / ".config/systemd/user/outlast-resume.service"

    @property
    def table(self) -> Path:
        return self.folder / "table"


@pytest.fixture
def machine(host: Host) -> Machine:
    tools = host.folder / "tools"  # what the scripts need, and no systemctl of this machine
    tools.mkdir()
    for name in ("sh", "cat", "rm", "touch", "git"):
        (tools / name).symlink_to(need_tool(name))
    (host.folder / "stand-in").mkdir()
    return Machine(host, host.folder / "stand-in")


ODD = ("/bin/true", "--store", '/a b/50% of $HOME/it\'s "so" \\ ;# ü', "resume", "--all")


def test_the_unit_passes_systemd_analyze(tmp_path: Path) -> None:
    verify = need_tool("systemd-analyze")
    paths = [
        tmp_path / name for name in (service_units.UNIT, service_units.WAKE_UNIT, service_units.WAKE_TIMER)
    ]
    for words in (("/bin/true", "resume", "--all"), ODD):
        boot = Boot(words, (("XDG_CONFIG_HOME", "/a b%"),), "/a b%/walls")
        texts = (
            service_units.unit(boot, lingering_is_ours=True),
            service_units.wake_unit(boot),
            service_units.wake_timer(),
        )
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        done = subprocess.run(
            [verify, "verify", "--user", "--man=no", *paths], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            env={"PATH": os.defpath, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), texts


def test_systemd_and_cron_read_the_words_back_that_were_meant(tmp_path: Path) -> None:
    """The shell reads cron's line, after cron has taken its own escape away; systemd's quoting is read back by us."""
    text = service_units.unit(Boot(ODD), lingering_is_ours=False)
    assert service_units.exec_start(text) == list(ODD)
    assert "50%% of $$HOME" in text, "neither a specifier nor a variable to systemd"
    say = ("printf", r"%s\n", *ODD[2:])
    line = service_units.cron_line(Boot(say, (("NAME", "a b"),))).removeprefix("@reboot ").replace("\\%", "%")
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(ODD[2:])
    assert list(
        service_units.cron_words(
            service_units.with_cron_lines("", service_units.cron_line(Boot(ODD, (("N", "a b"),))))
        )
    ) == list(ODD)


def test_each_minute_cron_starts_something_only_while_there_is_a_wall(tmp_path: Path) -> None:
    walls, started = tmp_path / "50% a b/walls", tmp_path / "started"
    words = ("sh", "-c", 'echo "$@" >> "$0"', str(started))
    line = service_units.cron_wake_line(Boot(words, (("NAME", "a b"),), str(walls))).removeprefix(
        "* * * * * "
    )

    def minute() -> str:
        subprocess.run(["/bin/sh", "-c", line.replace("\\%", "%")], check=True, timeout=TIMEOUT_S)
        return started.read_text() if started.exists() else ""

    assert minute() == "", "there was never one"
    walls.mkdir(parents=True)
    assert minute() == "", "none any more"
    (walls / "account.json").touch()
    assert minute() == "--parked\n"


def test_installed_looked_at_and_removed_with_systemd(machine: Machine) -> None:
    machine.has(systemctl=SYSTEMCTL, loginctl=LOGINCTL)
    assert machine("status").code == 1
    answer = machine("install", "--json")
    assert answer.code == 0, answer.err + answer.out
    found = answer.json
    assert (found["how"], found["lingering"], found["works"]) == ("systemd", True, True)
    assert found["command"][0] == str(Path(sys.executable).with_name("outlast"))
    assert found["command"][1:] == ["--store", str(machine.host.root), "resume", "--all"]
    text = machine.unit.read_text()
    for line in ("Type=oneshot", "RemainAfterExit=yes", "KillMode=process", "WantedBy=default.target"):
        assert line in text.splitlines()
    wake = machine.unit.with_name(service_units.WAKE_UNIT).read_text()
    assert service_units.exec_start(wake) == [*found["command"], "--parked"]
    assert f"ConditionDirectoryNotEmpty={machine.host.root}/walls" in wake.splitlines()
    assert "KillMode=process" in wake.splitlines(), "what it woke lives on"
    assert "OnCalendar=minutely" in machine.unit.with_name(service_units.WAKE_TIMER).read_text()
    assert machine("install").code == 0
    assert machine.unit.read_text() == text, "once more changes nothing"
    removed = machine("remove")
    assert (removed.code, removed.out) == (0, "removed\n")
    assert list(machine.unit.parent.iterdir()) == []
    assert list(machine.folder.glob("enabled")) == list(machine.folder.glob("lingers")) == []
    again = machine("remove")
    assert (again.code, again.out) == (0, "not installed\n")


def test_lingering_that_was_there_before_stays_and_where_it_needs_rights_one_is_told_what_to_type(
    machine: Machine,
) -> None:
    machine.has(systemctl=SYSTEMCTL, loginctl=LOGINCTL)
    (machine.folder / "lingers").touch()
    assert machine("install").code == 0
    assert machine("remove").code == 0
    assert (machine.folder / "lingers").exists()
    (machine.folder / "lingers").unlink()
    (machine.folder / "refuses").touch()
    answer = machine("install")
    assert answer.code == 1
    assert f"it starts at login, not at boot; `sudo loginctl enable-linger {USER}`" in answer.err


def test_without_systemd_a_line_of_cron_is_added_and_removed_and_all_others_stay(machine: Machine) -> None:
    machine.has(crontab=CRONTAB)
    before = "MAILTO=me\n# mine\n0 3 * * * backup --all\n@reboot other %\n"
    machine.table.write_text(before)
    for _ in range(2):
        answer = machine("install", "--json")
        assert (answer.code, answer.json["how"], answer.json["works"]) == (0, "cron", True), answer.err
    table = machine.table.read_text()
    assert table.startswith(before)
    ours = [line for line in table.removeprefix(before).splitlines() if not line.startswith("#")]
    assert len(ours) == 2
    command = f" {Path(sys.executable).with_name('outlast')} --store {machine.host.root} resume --all"
    assert ours[0].startswith("@reboot ")
    assert ours[0].endswith(command)
    assert ours[1].startswith(f'* * * * * [ -z "$(ls -A {machine.host.root}/walls 2>/dev/null)" ] || ')
    assert ours[1].endswith(f"{command} --parked >/dev/null 2>&1")
    assert machine("remove").code == 0
    assert machine.table.read_text() == before
    machine.table.unlink()
    assert machine("install").code == 0
    assert machine("remove").code == 0
    assert not machine.table.exists(), "a crontab that was not there before is gone again"


def test_with_neither_it_is_refused_and_said_what_has_to_run(machine: Machine) -> None:
    answer = machine("install")
    assert answer.code == 2
    error, hint = answer.err.splitlines()
    assert error == "error: there is neither a systemd user session nor cron here"
    assert hint.endswith(f"--store {machine.host.root} resume --all")


def test_what_would_keep_it_from_working_is_said(machine: Machine) -> None:
    machine.has(crontab=CRONTAB)
    assert machine("install").code == 0
    secrets = machine.host.isolated.config_home / "outlast/env"
    secrets.parent.mkdir(exist_ok=True)
    secrets.write_text("API_KEY=secret\n")
    secrets.chmod(0o644)
    answer = machine("status")
    assert answer.code == 1
    assert f"{secrets} holds secrets and others may read it; `chmod 600 {secrets}`" in answer.err
    secrets.chmod(0o600)
    assert machine("status").code == 0
    machine.table.write_text(machine.table.read_text().replace(sys.executable.rpartition("/")[0], "/gone"))
    assert "the program is gone: /gone/outlast" in machine("status").err


# -- a boot ------------------------------------------------------------------------------------------------------

# Says what it was started with, once per attempt, and waits to be let go.
AGENT = """#!{python}
import json, os, sys, time
from pathlib import Path
place = Path({place!r})
number = len(list(place.glob("told-*"))) + 1
mask = os.umask(0)
told = {{"env": dict(os.environ), "umask": mask, "cwd": os.getcwd(), "argv": sys.argv}}
(place / f"told-{{number}}.part").write_text(json.dumps(told))
(place / f"told-{{number}}.part").rename(place / f"told-{{number}}")
while not (place / "go").exists():
    time.sleep(0.01)
"""
KEPT = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV")
OTHER_BOOT = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


def boot(machine: Machine) -> subprocess.CompletedProcess[str]:
    """What systemd does at the next boot: the unit's own command in a bare environment, on a host with another boot id."""
    need_root()
    text = machine.unit.read_text()
    variables = [line.partition("=")[2] for line in text.splitlines() if line.startswith("Environment=")]
    other = machine.host.folder / "boot-id"
    other.write_text("00000000-1111-2222-3333-444444444444\n")
    words = ["unshare", "--mount", "sh", "-c", OTHER_BOOT, "sh", str(other), "env", "-i", *variables]
    return subprocess.run(
        [*words, *service_units.exec_start(text)], cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def told(host: Host, attempt: int) -> dict[str, object]:
    path = host.folder / f"told-{attempt}"
    wait_for(lambda: path.exists() or None, what=f"attempt {attempt}: {host.said('t')}")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def started_before_the_boot(machine: Machine) -> tuple[Path, dict[str, object]]:
    """An agent with an environment of its own, found by its PATH, dead with everything; what it was started with."""
    machine.has(systemctl=SYSTEMCTL, loginctl=LOGINCTL)
    host = machine.host
    program = host.folder / "bin/agent"
    program.parent.mkdir()
    program.write_text(AGENT.format(python=sys.executable, place=str(host.folder)))
    program.chmod(0o755)
    path = f"{program.parent}:{Path(sys.executable).parent}:{os.defpath}"
    host.start(
        "t", "agent", "--flag", "ä b", options=("--done", "agent-check"), within=("sh", "-c", 'umask 027; exec "$@"', "sh"),
        PATH=path, LANG="C.UTF-8", LC_ALL="C.UTF-8", VIRTUAL_ENV="/some/venv", API_KEY="first", EDITOR="ed",
    )  # fmt: skip
    check = program.with_name("agent-check")
    check.write_text('#!/bin/sh\necho "$API_KEY $VIRTUAL_ENV" > "$(dirname "$0")/checked"\n')
    check.chmod(0o755)
    first = told(host, 1)
    assert machine("install").code == 0
    host.kill_everything()
    return program, first


def secrets_of(machine: Machine, text: str, mode: int = 0o600) -> None:
    path = machine.host.isolated.config_home / "outlast/env"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def variables_of(found: dict[str, object]) -> dict[str, str]:
    variables = found["env"]
    assert isinstance(variables, dict)
    return variables


def test_at_boot_in_a_bare_environment_the_run_goes_on_as_it_was_started(machine: Machine) -> None:
    _, first = started_before_the_boot(machine)
    secrets_of(machine, "# mine\nexport API_KEY='from the file'\n")
    done = boot(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    second = told(machine.host, 2)
    assert [first[name] for name in ("umask", "cwd", "argv")] == [
        second[name] for name in ("umask", "cwd", "argv")
    ]
    now, before = variables_of(second), variables_of(first)
    assert {name: now[name] for name in KEPT} == {name: before[name] for name in KEPT}
    assert now["HOME"] == pwd.getpwuid(os.getuid()).pw_dir
    assert now["API_KEY"] == "from the file"
    assert "EDITOR" not in now
    missing = next(
        line for line in machine.host.log("t").splitlines() if "not set here, but at the first start" in line
    )
    assert "EDITOR" in missing.replace(";", ",").replace(": ", ", ").split(", ")
    assert "API_KEY" not in missing
    end = next(event for event in machine.host.events("t") if isinstance(event, ev.AttemptEnded))
    assert (end.cause, "before the last boot" in end.evidence) == ("host", True)
    machine.host.let_go()
    machine.host.comes_to("t", "done")
    checked = (machine.host.folder / "bin/checked").read_text()
    assert checked == "from the file /some/venv\n", "checks get what the command gets"


WEBHOOK = "curl -H 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz123456' https://example.invalid"


def test_settings_of_the_environment_are_in_force_again_at_boot_but_no_secrets(machine: Machine) -> None:
    host = machine.host
    machine.has(systemctl=SYSTEMCTL, loginctl=LOGINCTL)
    script = f"echo x >> {host.folder}/begun; while [ ! -e {host.folder}/go ]; do sleep 0.02; done"
    host.start("t", "bash", "-c", script, OUTLAST_IDLE_S="0.2", OUTLAST_NOTIFY=WEBHOOK)
    wait_for(lambda: "warned" in map(ev.tag_of, host.events_if("t")) or None, what="idleness to be named")
    assert machine("install").code == 0
    host.kill_everything()
    assert boot(machine).returncode == 0

    def idle() -> list[ev.AnyEvent]:
        warned = [event for event in host.events("t") if isinstance(event, ev.Warned)]
        return [event for event in warned if event.level == "idle 2"]

    wait_for(lambda: idle() or None, what="idleness to be named at boot too")
    assert "OUTLAST_NOTIFY" in host.log("t")
    data = b"".join(path.read_bytes() for path in host.root.rglob("*") if path.is_file())
    assert b"abcdefghijklmnopqrstuvwxyz123456" not in data
    host.let_go()
    host.comes_to("t", "done")


# An empty passwd, and nobody else who is asked: systemd would make up an entry for root.
NO_PASSWD = """
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf && shift && exec "$@"
"""


def without_a_home(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a bare uid: no HOME, and no entry in passwd."""
    need_root()
    etc = host.folder / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").touch()
    (etc / "nsswitch.conf").write_text("passwd: files\n")
    ours = [sys.executable, "-P", "-m", "outlast", "--store", str(host.root), *words]
    path = f"PATH={os.defpath}:/usr/bin:/bin"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", NO_PASSWD, "sh", str(etc), "env", "-i", path, *ours],
        cwd=host.repository("t"), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_without_a_home_a_run_goes_on(host: Host) -> None:
    script = f"[ -e {host.folder}/go ]"
    host.start("t", "sh", "-c", script, options=("--restarts", "1")).wait(TIMEOUT_S)
    host.let_go()
    done = without_a_home(host, "resume", "t")
    assert done.returncode == 0, done.stderr
    assert host.status("t") == "done"


@pytest.mark.parametrize("word", ["status", "install", "remove"])
def test_without_a_home_the_service_says_so_in_one_line(host: Host, word: str) -> None:
    done = without_a_home(host, "service", word)
    assert done.returncode == 2, done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: there is no home to install a service in")
    assert hint.startswith("hint: ")


def test_no_value_of_a_variable_that_may_be_secret_is_recorded(machine: Machine) -> None:
    started_before_the_boot(machine)
    data = b"".join(path.read_bytes() for path in machine.host.root.rglob("*") if path.is_file())
    assert b"API_KEY" in data
    assert b"first" not in data.replace(b"first_", b"")


def test_secrets_that_others_may_read_are_refused_in_one_line(machine: Machine) -> None:
    started_before_the_boot(machine)
    secrets_of(machine, "API_KEY=x\n", 0o644)
    done = boot(machine)
    assert done.returncode == 1
    assert "holds secrets and others may read it" in done.stdout
    assert machine.host.status("t") == "interrupted", "it is woken when that is mended"
    secrets_of(machine, "API_KEY=x\n")
    assert boot(machine).returncode == 0
    told(machine.host, 2)


def test_a_program_that_is_gone_parks_the_run(machine: Machine) -> None:
    program, _ = started_before_the_boot(machine)
    program.unlink()
    assert boot(machine).returncode == 1
    state = machine.host.summary("t").state
    assert (state.status, state.cause, state.parked_until) == ("parked", "program_missing", None)
    assert str(program) in state.evidence
    answer = machine.host("resume", "t", cwd=machine.host.folder / "t")
    assert answer.code == 5, "and again, for a person who resumes it"
