"""Which programs have a shim, where the PATH below an agent is another one, and scripts with a name: none passes unseen."""

import contextlib
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.supervisor.agent.calls.outward import OutwardCalls
from outlast.supervisor.agent.calls.shims import SHIMS, Shims
from tests.supervisor.hook_driver import LOCAL, MARK, AttemptDies, before
from tests.supervisor.test_shims import HELD, STAND_IN, Below, below

DEPLOY = "wrangler deploy"
# Package managers start a script like this: their project's programs come first.
NPM = '#!/bin/sh\n[ "$1" = run ] || exit 0\nPATH=$PWD/node_modules/.bin:$PATH\nexport PATH\nexec sh -c "wrangler deploy"\n'


def put(here: Below, place: Path, name: str, text: str = "") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    path = place / name
    path.write_text(text or STAND_IN.format(name=name, programs=here.programs))
    path.chmod(0o755)
    return path


def signature(here: Below) -> tuple[str, str]:
    return f"{DEPLOY} {here.there.work}", "tell"


def package(here: Below, **scripts: str) -> None:
    (here.there.work / "package.json").write_text(json.dumps({"name": "p", "scripts": scripts}))


def in_work(here: Below, command: str, call: str = "call_1") -> bytes:
    """The hook of a call that is made in the workspace."""
    return json.dumps(json.loads(before("claude", command, call)) | {"cwd": str(here.there.work)}).encode()


def test_a_script_of_package_json_is_on_record_before_it_runs_and_held_when_it_was_cut_off(
    tmp_path: Path,
) -> None:
    with below(tmp_path) as here:
        package(here, deploy=DEPLOY)
        assert here.there.allows(in_work(here, "npm run deploy"))
        assert here.there.intended() == [signature(here)]
        raise AttemptDies
    with below(tmp_path) as here:
        answer = here.there.ask(in_work(here, "npm run deploy", "call_2"))
        assert HELD in str(answer)
        raise AttemptDies


def test_a_program_of_the_project_is_seen_below_a_package_manager(tmp_path: Path) -> None:
    """Its folder stands before the shims, until `sh` has put them in front again."""
    with below(tmp_path) as here:
        put(here, here.there.work / "node_modules/.bin", "wrangler")
        put(here, here.programs, "pm", NPM)
        assert here.there.allows(before("claude", LOCAL))
        assert here.run("pm run deploy").returncode == 0
        assert here.there.intended()[-1:] == [signature(here)]
        assert here.done == [DEPLOY]
        raise AttemptDies


def test_a_package_manager_below_a_script_is_asked_about_what_it_runs(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        package(here, deploy=DEPLOY, build="true")
        put(here, here.there.work / "node_modules/.bin", "wrangler")
        put(here, here.programs, "npm", NPM.replace("exec sh", "exec /bin/sh"))
        assert here.there.allows(before("claude", LOCAL))
        assert here.run("npm run build; npm run deploy").returncode == 0
        assert [each for each in here.there.intended() if each[1] == "tell"] == [signature(here)]
        raise AttemptDies


def test_a_bash_script_has_the_shims_first_though_another_folder_stood_before_them(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        place = put(here, here.there.work / ".venv/bin", "curl").parent
        text = f"PATH={place}:$PATH bash -c 'command -v curl; echo $PATH'"
        found, path = here.run(text).stdout.splitlines()
        shims = str(here.there.attempt._agent.folder / SHIMS)
        assert found == f"{shims}/curl"
        assert path.split(":")[:2] == [shims, str(place)]
        assert path.split(":").count(shims) == 1
        raise AttemptDies


def test_what_is_installed_meanwhile_has_a_shim_at_the_next_call_and_what_is_not_has_none(
    tmp_path: Path,
) -> None:
    with below(tmp_path) as here:
        assert here.run("command -v flyctl").returncode != 0
        put(here, here.programs, "flyctl")
        assert here.there.allows(before("claude", LOCAL))
        shims = str(here.there.attempt._agent.folder / SHIMS)
        assert here.run("command -v flyctl").stdout == f"{shims}/flyctl\n"
        assert here.run("flyctl deploy").returncode == 0
        assert here.there.intended()[-1:] == [(f"flyctl deploy {here.there.work}", "tell")]
        raise AttemptDies


@pytest.mark.parametrize("words", ["wrangler deploy", "wrangler --version"])
def test_a_shim_whose_program_is_not_on_the_path_says_what_a_shell_says(tmp_path: Path, words: str) -> None:
    with below(tmp_path) as here:
        put(here, here.there.work / "node_modules/.bin", "wrangler")
        here.there.allows(before("claude", LOCAL))
        done = here.run(words)
        assert (done.returncode, done.stderr) == (127, "wrangler: command not found\n")
        assert [each for each in here.there.intended() if each[1] == "tell"] == []
        raise AttemptDies


def test_a_runner_and_the_program_it_starts_are_one_call(tmp_path: Path) -> None:
    """Both have shims: the deploy is on record once, by the agent's call or by the runner's shim."""
    with below(tmp_path) as here:
        package(here, deploy=DEPLOY)
        put(here, here.there.work / "node_modules/.bin", "wrangler")
        put(here, here.programs, "npm", NPM)
        assert here.there.allows(in_work(here, "npm run deploy"))
        assert here.run("npm run deploy").returncode == 0
        assert here.states() == []  # it happened
        assert here.run("npm run deploy").returncode == 0
        assert here.done == [DEPLOY, DEPLOY]
        assert [each for each in here.there.intended() if each[1] == "tell"] == [signature(here)] * 2
        raise AttemptDies


def test_a_runner_is_no_part_of_another_one_that_does_the_same_at_once(tmp_path: Path) -> None:
    """Else two deploys are on record as one, and the second is made again after a kill."""
    with below(tmp_path) as here:
        package(here, deploy=DEPLOY)
        put(here, here.there.work / "node_modules/.bin", "wrangler")
        put(here, here.programs, "npm", NPM)
        (here.programs / "hold").touch()
        os.mkfifo(here.programs / "gate")
        first = f"until [ -e {here.programs}/witness ]; do sleep 0.05; done"
        done = here.run(f"npm run deploy & {first}; npm run deploy; echo > {here.programs}/gate; wait")
        assert done.returncode == 0, done.stderr
        assert here.done == [DEPLOY, DEPLOY]
        assert [each for each in here.there.intended() if each[1] == "tell"] == [signature(here)] * 2
        assert here.states() == []
        raise AttemptDies


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Files of this process get no content, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_shim_for_which_there_is_no_room_is_made_when_there_is(tmp_path: Path) -> None:
    """An empty one would be run by a shell, end with 0, and count as made; one that is forgotten would let all pass unseen."""
    programs = tmp_path / "programs"
    programs.mkdir()
    known, client = OutwardCalls({}).known, tmp_path / "run/client/copy"
    client.mkdir(parents=True)
    shims = Shims(tmp_path / "shims", client, {"PATH": str(programs)}, known, "socket", MARK, tmp_path)
    shims.environment({})
    (programs / "wrangler").write_text(STAND_IN.format(name="wrangler", programs=programs))
    (programs / "wrangler").chmod(0o755)
    with no_room(), pytest.raises(OSError, match="File too large"):
        shims.refresh()
    assert {path.name for path in (tmp_path / "shims").iterdir()} == {"outlast", "sh"}
    shims.refresh()
    assert "outlast: lets wrangler through" in (tmp_path / "shims/wrangler").read_text()
