"""Page and command bring a save back into the same folders, refuse the same ones, and leave the same note."""

from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Run
from outlast.cli.main import main
from tests.dashboard.conftest import dashboard as dashboard, start as start
from tests.dashboard.dashboard import Dashboard
from tests.dashboard.test_actions_files import work as work, worked

REFUSED = (
    "{store}/new",
    "{work}/inside",
    "{work}/.git/new",
    "{work}",
    "{tmp}/full",
    "{tmp}/bare.git/new",
    "/proc/new",
)


def test_page_and_command_refuse_the_same_folders_with_the_same_words(
    dashboard: Dashboard,
    start: Callable[..., Run],
    work: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worked(start, work)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    for part in ("HEAD", "objects", "refs"):
        (tmp_path / "bare.git" / part).mkdir(parents=True)
    save = dashboard.summary().state.last_save
    capsys.readouterr()
    for given in REFUSED:
        folder = given.format(store=dashboard.store.local.folder, work=work, tmp=tmp_path)
        says, hint = dashboard.refused("restore", save=save, folder=folder)
        words = ["restore", save, "--to", folder, "--workspace", str(work), "--store", dashboard.store.url]
        for dry_run in ([], ["--dry-run"]):
            assert main([*words, *dry_run]) != 0, given
            assert capsys.readouterr().err.splitlines() == [f"error: {says}", f"hint: {hint}"], given


def test_page_and_dry_run_say_the_same_and_both_leave_a_note(
    dashboard: Dashboard,
    start: Callable[..., Run],
    work: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worked(start, work)
    save = dashboard.summary().state.last_save
    foreseen = dashboard.foresee("restore", save=save, folder=str(tmp_path / "new"))
    words = [
        "restore",
        save,
        "--to",
        str(tmp_path / "new"),
        "--workspace",
        str(work),
        "--store",
        dashboard.store.url,
    ]
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line in foreseen.says] == list(foreseen.says)
    assert main(words) == 0
    assert "are in" in capsys.readouterr().err
    assert dashboard.do("restore", save=save, folder=str(tmp_path / "another")).ok
    assert [what for what, _ in dashboard.asked()] == ["restore", "restore"]
