"""Each channel speaks the form its far side documents; what it says carries no secret; a dead one is said, and not for ever."""

import hashlib
import hmac
import json
import os
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.notifications import message
from outlast.notifications.channels.desktop import Desktop
from outlast.notifications.channels.ntfy import Ntfy
from outlast.notifications.channels.slack import Slack
from outlast.notifications.channels.webhook import Webhook
from outlast.notifications.links import Links
from outlast.notifications.message import Message
from outlast.notifications.post import Unsent
from outlast.store.local import Local
from tests.notifications import far_side
from tests.notifications.far_side import Came, ChannelServer, decoded
from tests.notifications.notices import ASKED, notice, private
from tests.support.environment import TIMEOUT_S, Isolated

PAGE = "https://runs.example.com"
HOOK = "/services/T0001/B0001/xyz"


@pytest.fixture
def server() -> Iterator[ChannelServer]:
    with far_side.far_side(far_side.anything) as made:
        yield made


def made(tmp_path: Path, page: str = PAGE, **fields: object) -> Message:
    return message.of(
        notice(acts=(ASKED,), **fields), page, Links(Local(tmp_path / "state")), datetime.now(UTC)
    )


def test_ntfy_gets_title_priority_tag_link_and_buttons(tmp_path: Path, server: ChannelServer) -> None:
    server.speaks = far_side.ntfy
    token = private(tmp_path / "token", "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2")
    whole = made(tmp_path, task="größe", line="größe needs you: ask\r\nX-Email: a@example.org")
    assert Ntfy(f"{server.url}/outlast-x9", token).send(whole) == "HTTP 200"
    (came,) = server.came
    assert decoded(came.headers["title"]) == "outlast: größe"
    assert (came.headers["priority"], came.headers["tags"]) == ("5", "raising_hand")
    assert came.headers["authorization"] == "Bearer tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
    assert came.headers["click"].startswith(f"{PAGE}/press/")
    (action,) = json.loads(came.headers["actions"])
    assert (action["action"], action["label"], action["url"]) == ("view", "Resume", came.headers["click"])
    assert "x-email" not in came.headers
    assert came.body.decode().startswith("größe needs you: ask")


def test_where_the_page_is_not_reached_the_message_says_the_command(
    tmp_path: Path, server: ChannelServer
) -> None:
    server.speaks = far_side.ntfy
    Ntfy(f"{server.url}/outlast-x9").send(made(tmp_path, page=""))
    (came,) = server.came
    assert "click" not in came.headers
    assert "actions" not in came.headers
    assert came.body.decode().splitlines()[-1] == "outlast settle 1411 3.1"


def test_slack_gets_blocks_in_which_a_run_can_mention_nobody(tmp_path: Path, server: ChannelServer) -> None:
    server.speaks = far_side.slack
    hook = private(tmp_path / "hook", f"{server.url}{HOOK}")
    assert Slack(hook).send(made(tmp_path, line="1411 needs you: <!channel> & <https://evil|here>")) == "ok"
    (came,) = server.came
    header, section, actions = came.json["blocks"]
    assert header["text"]["text"] == "outlast: 1411"
    assert section["text"] == {
        "type": "plain_text", "text": "1411 needs you: <!channel> & <https://evil|here>", "emoji": False,
    }  # fmt: skip
    assert actions["elements"][0]["url"].startswith(f"{PAGE}/press/")
    assert "<" not in came.json["text"]


def test_slack_that_refuses_is_dead_with_its_own_word_and_without_its_address(
    tmp_path: Path, server: ChannelServer
) -> None:
    server.speaks = far_side.slack
    with pytest.raises(Unsent, match="HTTP 404, no_service") as caught:
        Slack(f"{server.url}/services/gone/secret").send(made(tmp_path))
    assert "secret" not in str(caught.value)
    assert not caught.value.again


def test_a_webhook_gets_json_that_its_secret_signs(tmp_path: Path, server: ChannelServer) -> None:
    secret = private(tmp_path / "secret", "correct horse")
    Webhook(f"{server.url}/hook?key=1", secret).send(made(tmp_path))
    (came,) = server.came
    signed = came.headers["x-outlast-timestamp"].encode() + b"." + came.body
    expected = hmac.new(b"correct horse", signed, hashlib.sha256).hexdigest()
    assert came.headers["x-outlast-signature"] == f"sha256={expected}"
    assert (came.json["what"], came.json["run"], came.json["task"]) == ("needs a person", "run1411", "1411")
    assert came.json["link"].startswith(f"{PAGE}/press/")
    assert came.path == "/hook?key=1"


def test_the_desktop_gets_no_link_that_another_user_could_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert Desktop().send(made(tmp_path, line="<b>1411</b> needs you")) == "shown"
    words = (tmp_path / "words").read_text()
    assert "&lt;b&gt;1411" in words
    assert "outlast settle 1411 3.1" in words
    assert "press" not in words


def test_a_desktop_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsent, match="no notify-send"):
        Desktop().send(made(tmp_path))


def test_no_redirect_leads_to_another_host(tmp_path: Path, server: ChannelServer) -> None:
    with far_side.far_side(far_side.anything) as other:
        server.speaks = lambda came: (307, "", {"Location": f"{other.url}/hook"})
        with pytest.raises(Unsent, match="redirects to another host"):
            Webhook(f"{server.url}/hook").send(made(tmp_path))
        assert other.came == []


def test_a_redirect_on_the_same_host_gets_the_same_request(tmp_path: Path, server: ChannelServer) -> None:
    server.first = [lambda came: (308, "", {"Location": "/elsewhere"})]
    Webhook(f"{server.url}/hook").send(made(tmp_path))
    first, second = server.came
    assert (second.method, second.path, second.body) == ("POST", "/elsewhere", first.body)


def test_a_far_side_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it heard may have arrived, so nothing is sent again."""
    monkeypatch.setenv("OUTLAST_TIMING", "notifications.post_s=0.2")
    over = threading.Event()
    server.speaks = lambda came: (200, str(over.wait(TIMEOUT_S)), {})
    with pytest.raises(Unsent, match="may have arrived") as caught:
        Webhook(f"{server.url}/hook").send(made(tmp_path))
    over.set()
    assert not caught.value.again


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (429, True), (500, True), (503, True)]
)
def test_what_may_pass_is_tried_again_and_a_refusal_is_not(
    tmp_path: Path, server: ChannelServer, status: int, again: bool
) -> None:
    server.speaks = lambda came: (status, "no", {})
    with pytest.raises(Unsent) as caught:
        Webhook(f"{server.url}/hook").send(made(tmp_path))
    assert caught.value.again == again


def test_a_certificate_that_nobody_vouches_for_gets_nothing(tmp_path: Path, server: ChannelServer) -> None:
    """A server without TLS stands for it: an address with https is never spoken to in the clear."""
    with pytest.raises(Unsent):
        Webhook(f"{server.url.replace('http:', 'https:')}/hook").send(made(tmp_path))
    assert server.came == []


def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    Webhook("http://hooks.example.invalid/hook").send(made(tmp_path))
    (came,) = server.came
    assert came.path == "http://hooks.example.invalid/hook"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path, server: ChannelServer, mode: int) -> None:
    hook = private(tmp_path / "hook", f"{server.url}{HOOK}")
    os.chmod(hook, mode)
    with pytest.raises(Unsent, match=r"other users can read .*chmod 600"):
        Slack(hook).send(made(tmp_path))
    assert server.came == []
    assert stat.S_IMODE(os.stat(hook).st_mode) == mode


def test_nothing_that_is_sent_has_a_secret_of_the_run(
    tmp_path: Path, state: Isolated, server: ChannelServer
) -> None:
    from outlast.notifications.notice import clean, line_of

    key = "sk-ant-api03-" + "a1B2" * 24
    whole = made(
        tmp_path,
        line=line_of("1411", "failed", f"API_KEY={key} make deploy"),
        why=clean(f"token {key}", 1000),
    )
    server.speaks = far_side.ntfy
    Ntfy(f"{server.url}/t").send(whole)
    server.speaks = far_side.slack
    Slack(f"{server.url}{HOOK}").send(whole)
    server.speaks = far_side.anything
    Webhook(f"{server.url}/hook").send(whole)

    def everything(came: Came) -> str:
        return f"{came.headers}{came.body.decode()}"

    assert len(server.came) == 3
    assert not any("a1B2a1B2" in everything(came) for came in server.came)
