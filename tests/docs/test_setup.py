"""What docs/setup.md shows is so: its sample settings are taken, and git shows no saves."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.environment import ROOT, Isolated

TEXT = (ROOT / "docs/setup.md").read_text(encoding="utf-8")


def test_every_sample_setting_is_one_and_is_in_force(state: Isolated, tmp_path: Path) -> None:
    sample = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)[0]
    place = state.config_home / "outlast/config.toml"
    place.parent.mkdir(parents=True)
    place.write_text(sample)
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "config"], cwd=tmp_path, env=state.environ(), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    given = tomllib.loads(sample)
    names = [name for name, value in given.items() if not isinstance(value, dict)]
    names += [f"{group}_{name}" for group in given if isinstance(given[group], dict) for name in given[group]]
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    for name in names:
        assert str(place) in shown[name], done.stdout


def test_what_shows_all_refs_shows_no_saves(state: Isolated, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=tmp_path, env=state.environ(), capture_output=True, text=True, check=True
        ).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "mine")
    (tmp_path / "file").write_text("x")
    subprocess.run(
        [sys.executable, "-m", "outlast", "save"],
        cwd=tmp_path,
        env=state.environ(),
        capture_output=True,
        check=True,
    )
    assert git("log", "--all", "--format=%s").splitlines() == ["mine"]
