"""What a test may find missing in its environment, and how it gets one of its own.

Only what touches users, folders and variables; worlds with a witness live elsewhere.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
TIMEOUT_S = 180.0  # only there to end a hang


def skip_or_fail(reason: str) -> NoReturn:
    """Skip, visibly, at home; fail in CI, where nothing may be missing: not strace, not root."""
    import pytest  # the benchmarks use these worlds too, and have none

    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(f"skipped tests fail in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def need_root() -> None:
    """Go on only as root."""
    if os.geteuid() != 0:
        skip_or_fail("needs root")


def need_tool(name: str) -> str:
    """The full path of a program; mkfs and its kind are found although no user's PATH names their folder."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        skip_or_fail(f"needs {name}")
    return found


@dataclass(frozen=True, slots=True)
class Isolated:
    """A home of a test's own; the variables that lead there are already set."""

    home: Path
    state_home: Path
    config_home: Path

    @classmethod
    def at(cls, home: Path) -> Self:
        """This home, with its other folders where they usually are."""
        return cls(home, home / ".local/state", home / ".config")

    @property
    def variables(self) -> dict[str, str]:
        """What leads a process here, and nothing else."""
        return {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.state_home),
            "XDG_CONFIG_HOME": str(self.config_home),
            "OUTLAST_LOOPBACK": "outward",  # the tests' witness and forges lie on this machine
        }

    def environ(self, **more: str) -> dict[str, str]:
        """A whole environment for a child process: ours without outlast's variables, leading here."""
        return without_outlast(os.environ) | self.variables | more


def without_outlast(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without outlast's own: the tests may themselves be run by an agent under outlast.

    OUTLAST_TEST_… are the tests' settings and not the product's; those stay.
    """
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("OUTLAST_") or name.startswith("OUTLAST_TEST_")
    }


def hear_for_children(unheard: Iterable[int] = ()) -> list[int]:
    """Signals that whoever started the tests ignores still reach what the tests start; these here stay unmoved.

    `nohup` ignores SIGHUP, a shell SIGINT and SIGQUIT for what it runs in the background. What is ignored, a child
    inherits, and a shell can then not even trap it; what is handled is reset in a child. Returns their numbers."""
    asked = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    ignored = {number for number in asked if signal.getsignal(number) is signal.SIG_IGN} | set(unheard)
    for number in ignored:
        signal.signal(number, lambda *_: None)
    return sorted(int(number) for number in ignored)


def isolate(folder: Path) -> Isolated:
    """Make a home in `folder`: empty but for an identity for git."""
    isolated = Isolated.at(folder / "home")
    isolated.state_home.mkdir(parents=True)
    isolated.config_home.mkdir(parents=True)
    (isolated.home / ".gitconfig").write_text(
        "[user]\n\tname = A Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n"
    )
    return isolated


def run_unprivileged(
    argv: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user: as nobody when we are root, else as ourselves.

    `cwd` is given to that user, who must be able to reach it (pytest's own folders are closed to others:
    use the fixture `as_nobody`).
    """
    variables = dict(os.environ if env is None else env) | {"PYTHONDONTWRITEBYTECODE": "1"}
    user = group = None
    extra_groups = None
    if os.geteuid() == 0:
        os.chown(cwd, NOBODY, NOBODY)
        user, group, extra_groups = NOBODY, NOBODY, []
    return subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env=variables,
        user=user,
        group=group,
        extra_groups=extra_groups,
        text=True,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def nobody_can_import_outlast(folder: Path) -> bool:
    """False when the checkout or its environment lies where other users cannot look, as in root's home."""
    return run_unprivileged([sys.executable, "-c", "import outlast"], cwd=folder).returncode == 0
