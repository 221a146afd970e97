"""What a person does with runs, with the store in a PostgreSQL: each command as on a folder."""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from outlast.store import open_store
from outlast.store.protocol import RunFilter
from tests.support import commands, processes
from tests.support.environment import Isolated

STEPS = """
outlast step one -- sh -c 'echo one >> made' || exit $?
outlast step two -- sh -c 'echo two >> made' || exit $?
outlast effect post -- sh -c 'echo posted >> "$WORLD"' || exit $?
api=$(outlast ask 'Which API?' --choice v1 --choice v2) || exit $?
echo "$api" >> made
"""


class SharedStoreDesk:
    """A repository, and commands in it whose store is in the database."""

    def __init__(self, state: Isolated, url: str) -> None:
        self.url, self.folder, self.world = url, state.home / "app", state.home / "world"
        self.folder.mkdir()
        programs = state.home / "bin"
        programs.mkdir()
        called = " ".join(f"'{word}'" for word in commands.ARGV)
        (programs / "outlast").write_text(f'#!/bin/sh\nexec {called} "$@"\n')
        (programs / "outlast").chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        self.environ = state.environ(OUTLAST_STORE=url, WORLD=str(self.world), PATH=path)
        (self.folder / "work.sh").write_text(STEPS)
        self.sh("git init -q . && git add . && git commit -qm first")

    def sh(self, script: str, folder: Path | None = None) -> str:
        return subprocess.run(
            script, shell=True, cwd=folder or self.folder, env=self.environ, check=True, capture_output=True, text=True
        ).stdout  # fmt: skip

    def __call__(self, *words: str | Path, code: int = 0, store: Path | None = None) -> commands.Answer:
        environ = self.environ | ({"OUTLAST_STORE": str(store)} if store else {})
        done = subprocess.run(
            [*commands.ARGV, *map(str, words)], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )  # fmt: skip
        answer = commands.Answer(done.returncode, done.stdout, done.stderr)
        assert answer.code == code, f"{answer.out}{answer.err}"
        return answer

    def status(self, task: str) -> str:
        return str(self("show", task, "--json").json["status"])


@pytest.fixture
def desk(state: Isolated, postgres_url: str) -> SharedStoreDesk:
    return SharedStoreDesk(state, postgres_url)


def test_a_script_with_steps_asks_a_person_and_its_result_is_applied_undone_and_forgotten(
    desk: SharedStoreDesk,
) -> None:
    desk("run", "--task", "t", "--worktree", "--", "sh", "work.sh", code=3)
    assert desk.status("t") == "parked"
    assert "Which API?" in desk("show", "t").out
    desk("answer", "t", "v2")
    processes.wait_for(lambda: desk.status("t") == "done" or None, what="it to go on with the answer")
    assert desk.world.read_text() == "posted\n", "once, although it was started twice"
    assert re.search(r"post", desk("effects", "t").out)
    assert [run["task"] for run in desk("ls", "--json").json] == ["t"]
    assert "done" in desk("report").out
    desk("apply", "t")
    assert (desk.folder / "made").read_text() == "one\ntwo\nv2\n"
    desk("rm", "t", "--yes", "--force")
    assert desk("ls", "--json").json == []
    assert (desk.folder / "made").exists()
    looked = desk("doctor", "--all")
    assert "belongs to no run" not in looked.out


def test_a_turn_is_undone_a_run_forked_exported_and_taken_in_by_a_folder(desk: SharedStoreDesk) -> None:
    desk("run", "--task", "t", "--", "sh", "-c", "echo made > made")
    desk("undo", "t")
    assert not (desk.folder / "made").exists()
    desk("undo", "t", "--undo")
    assert (desk.folder / "made").exists()
    desk("fork", "t", "--at", "0", "--task", "u", "--yes")
    assert sorted(run["task"] for run in desk("ls", "--json").json) == ["t", "u"]
    file, other = desk.folder.parent / "u.tar.gz", desk.folder.parent / "other"
    desk("export", "u", "-o", file)
    assert desk.status("u") == "handed_off"
    desk("import", file, store=other)
    assert [run["task"] for run in desk("ls", "--json", store=other).json] == ["u"]
    gone = desk("gc", "--older-than", "0s")
    assert desk("ls", "--json").json == [], gone


def test_a_run_at_work_is_seen_on_the_page_gets_more_and_is_paused(desk: SharedStoreDesk) -> None:
    script = "while [ ! -e go ]; do sleep 0.05; done"
    words = [*commands.ARGV, "run", "--task", "t", "--budget", "beats=3", "--", "sh", "-c", script]
    page = [sys.executable, "-m", "outlast", "ui", "--port", "0"]
    started = {"cwd": desk.folder, "env": desk.environ, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(words, **started) as run,  # type: ignore[call-overload]
        subprocess.Popen(page, **started) as ui,  # type: ignore[call-overload]
    ):
        try:
            address = re.findall(r"http://\S+", ui.stdout.readline())[0]
            runs = f"{address.rstrip('/')}/api/runs"

            def shown(word: str) -> bool:
                with urllib.request.urlopen(runs, timeout=60) as answer:
                    return word in answer.read().decode()

            processes.wait_for(lambda: shown('"running"'), what="the page to show that it runs")
            desk("budget", "t", "--add", "beats=4")
            processes.wait_for(
                lambda: '"beats": 7' in desk("budget", "t", "--json").out or None, what="the budget to grow"
            )
            desk("pause", "t")
            run.communicate(timeout=processes.LIMIT_S)
            assert desk.status("t") == "paused"
            processes.wait_for(lambda: shown('"paused"'), what="the page to show the pause")
        finally:
            for each in (run, ui):
                each.terminate()
    (desk.folder / "go").touch()
    desk("resume", "t")
    assert desk.status("t") == "done"


def test_walls_pools_and_presses_of_the_page_are_rows_that_every_host_sees(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = []
    for name in ("a", "b"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))
        stores.append(open_store(postgres_url))
    here, there = stores
    for kind in ("walls", "pools"):
        here.shelf.change(kind, "mine", lambda _: b"until noon\n")  # type: ignore[arg-type]
        assert dict(there.shelf.every(kind)) == {"mine": b"until noon\n"}  # type: ignore[arg-type]
    assert here.list(RunFilter()) == there.list(RunFilter())
    for store in stores:
        store.close()
