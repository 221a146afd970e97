"""`outlast notify`: each channel says what became of the test; a dead one is said there, by `doctor`, and not hidden by a repository."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notifications import far_side
from tests.notifications.far_side import ChannelServer
from tests.notifications.notices import own_settings, private
from tests.support import commands
from tests.support.commands import Answer
from tests.support.environment import Isolated


@pytest.fixture
def server() -> Iterator[ChannelServer]:
    with far_side.far_side(far_side.ntfy) as made:
        yield made


def outlast(state: Isolated, cwd: Path, *words: str) -> Answer:
    return commands.ask(words, cwd=cwd, env=state.environ())


def test_a_test_says_for_each_channel_what_happened(
    state: Isolated, tmp_path: Path, server: ChannelServer
) -> None:
    hook = private(tmp_path / "hook", f"{server.url}/services/nowhere/secretsecret")
    own_settings(state, ntfy=f"{server.url}/t", slack=hook, command="true")
    found = outlast(state, tmp_path, "notify", "--test")
    assert found.code == 2
    lines = {line.split()[0]: line for line in found.out.splitlines()}
    assert "works" in lines["ntfy"]
    assert "HTTP 200" in lines["ntfy"]
    assert "dead" in lines["slack"]
    assert "works" in lines["command"]
    assert "secretsecret" not in found.out + found.err
    assert server.came[0].body.decode().startswith("outlast: this is a test")

    assert outlast(state, tmp_path, "notify", "--test", "ntfy").code == 0
    looked = outlast(state, tmp_path, "notify")
    assert looked.code == 0
    assert "dead" in looked.out
    document = json.loads(outlast(state, tmp_path, "notify", "--json").out)
    assert {each["channel"]: each["dead"] for each in document["channels"]} == {
        "ntfy": False, "slack": True, "command": False,
    }  # fmt: skip


def test_doctor_says_that_a_channel_is_dead(state: Isolated, tmp_path: Path) -> None:
    own_settings(state, ntfy="http://127.0.0.1:9/t")
    assert outlast(state, tmp_path, "run", "--task", "t", "--", "true").code == 0
    assert outlast(state, tmp_path, "notify", "--test").code == 2
    found = outlast(state, tmp_path, "doctor").out
    assert "notify: ntfy does not work" in found
    assert "`outlast notify --test ntfy`" in found


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--test", "slak"), "no such channel: slak"),
        (("--test", "slack"), "the channel slack is not set"),
        (("--test",), "no channel is set"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    state: Isolated, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    found = outlast(state, tmp_path, "notify", *words)
    assert found.code == 2
    assert says in found.err


def test_no_address_is_shown_by_config(state: Isolated, tmp_path: Path) -> None:
    own_settings(state, slack="https://hooks.slack.com/services/T1/B1/topsecret")
    found = outlast(state, tmp_path, "config").out + outlast(state, tmp_path, "config", "--json").out
    assert "topsecret" not in found
    assert "https://hooks.slack.com/…" in found


@pytest.mark.parametrize(
    "line", ["[notify]\nntfy = 'http://127.0.0.1:1/x'", "ui_url = 'http://evil.example'"]
)
def test_the_file_of_a_repository_neither_names_nor_learns_where_notices_go(
    state: Isolated, tmp_path: Path, server: ChannelServer, line: str
) -> None:
    own_settings(state, ntfy=f"{server.url}/mine")
    repository = tmp_path / "app"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (repository / "outlast.toml").write_text(line)
    found = outlast(state, repository, "run", "--task", "t", "--", "true")
    assert found.code == 2
    assert "only your own file may set it" in found.err
    assert outlast(state, repository, "notify", "--test").code == 0
    assert [came.path for came in server.came] == ["/mine"]
