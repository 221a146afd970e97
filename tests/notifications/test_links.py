"""A token is good for one act, for a while, as this host signed it; nobody else can make or change one."""

import base64
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.setting_values import quiet_hours
from outlast.errors import UsageError
from outlast.notifications import links, page_address
from outlast.notifications.links import BadLink, Links
from outlast.store.local import Local
from tests.notifications.notices import NOW, later

DAY_S = 86_400.0


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path / "state")


def test_a_token_says_what_it_is_good_for(local: Local) -> None:
    token = Links(local).token("approve", "r1", "q1", NOW)
    found = Links(local).read(token, later(DAY_S))
    assert (found.act, found.run, found.subject) == ("approve", "r1", "q1")
    assert token != Links(local).token("approve", "r1", "q1", NOW), "each is pressed for itself"


def test_it_expires_and_with_its_question_if_that_is_earlier(local: Local) -> None:
    made = Links(local)
    assert made.read(made.token("approve", "r1", "q1", NOW), later(2 * DAY_S - 1))
    with pytest.raises(BadLink, match="expired"):
        made.read(made.token("approve", "r1", "q1", NOW), later(2 * DAY_S))
    with pytest.raises(BadLink, match="expired"):
        made.read(made.token("approve", "r1", "q1", NOW, NOW + timedelta(minutes=5)), later(300))


def test_no_changed_token_is_one(local: Local) -> None:
    made = Links(local)
    token = made.token("reject", "r1", "q1", NOW)
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for changed in (
        raw.replace(b"reject", b"accept"),
        raw.replace(b'"q1"', b'"q2"'),
        raw.replace(b'"r1"', b'"r2"'),
    ):
        assert changed != raw
        with pytest.raises(BadLink, match="not a link"):
            made.read(base64.urlsafe_b64encode(changed).decode().rstrip("="), NOW)
    for bad in ("", "x", token[:-2], token + "AAAA", "=" * 20, "ü" * 8, "A" * (links.TOKEN_CHARS_MAX + 1)):
        with pytest.raises(BadLink, match="not a link"):
            made.read(bad, NOW)


def test_a_token_of_another_state_folder_is_none(local: Local, tmp_path: Path) -> None:
    with pytest.raises(BadLink, match="not a link"):
        Links(local).read(Links(Local(tmp_path / "other")).token("approve", "r1", "q1", NOW), NOW)


def test_the_secret_is_its_owners_alone(local: Local) -> None:
    Links(local).token("approve", "r1", "q1", NOW)
    assert stat.S_IMODE(local.link_secret.stat().st_mode) == 0o600
    os.chmod(local.link_secret, 0o644)
    with pytest.raises(UsageError, match="not yours alone"):
        Links(local).token("approve", "r1", "q1", NOW)


def test_a_page_is_reached_while_it_runs(local: Local) -> None:
    local.folder.mkdir()
    assert page_address.reachable(local, "") == ""
    with page_address.announced(local, "http://192.0.2.7:8477/"):
        assert page_address.reachable(local, "") == "http://192.0.2.7:8477"
        assert page_address.reachable(local, "https://runs.example.com/") == "https://runs.example.com"
    assert page_address.reachable(local, "") == "", "the note of a page that has ended says nothing"


@pytest.mark.parametrize(
    ("text", "hour", "holds"),
    [
        ("22:00-07:00", 22, True), ("22:00-07:00", 3, True), ("22:00-07:00", 7, False), ("22:00-07:00", 21, False),
        ("09:00-12:00", 9, True), ("09:00-12:00", 12, False),
    ],
)  # fmt: skip
def test_quiet_hours_go_over_midnight(text: str, hour: int, holds: bool) -> None:
    found = quiet_hours.read(text)
    assert found is not None
    now = NOW.replace(hour=hour)
    assert found.holds(now) == holds
    assert found.holds(found.ends(now)) is False
    assert timedelta(0) < found.ends(now) - now <= timedelta(days=1)


@pytest.mark.parametrize("text", ["22:00", "25:00-07:00", "22:00-22:00", "10pm-7am", "22:00-07:60"])
def test_what_are_no_quiet_hours_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        quiet_hours.read(text)
