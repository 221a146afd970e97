"""Credentials in the settings of a repository inside: kept apart as a secret, while the save has the settings without them."""

import stat
from pathlib import Path

import pytest

from outlast.workspace.capture.special import secrets
from tests.workspace.test_guards import is_anywhere
from tests.workspace.test_nested_repos import NEST
from tests.workspace.workspace import Workspace

TOKEN = "ghp_0123456789abcdef0123456789abcdef0123"
WITH = f"git remote add origin https://oauth2:{TOKEN}@github.com/x/y"
REMOTE = "cd in; git remote get-url origin"


@pytest.fixture
def nested(place: Workspace) -> Workspace:
    place.sh(
        f"{NEST}; {WITH}; git config http.extraheader 'AUTHORIZATION: basic {TOKEN}'; chmod 600 .git/config"
    )
    place.sh(f"echo 'machine h login me password {TOKEN}' > in/.git/.netrc")
    return place


def config(place: Workspace) -> Path:
    return place.folder / "in/.git/config"


def test_they_go_into_no_object_and_come_back_when_asked(nested: Workspace) -> None:
    before = config(nested).read_bytes()
    saved = nested.save()
    assert not is_anywhere(nested.folder / ".git", TOKEN.encode())
    assert is_anywhere(secrets.git_dir(nested.saver.private), TOKEN.encode())
    told = {left.path: left.why for left in saved.left_out}
    assert told == dict.fromkeys(["in/.git/.netrc", "in/.git/config"], "secret, kept apart")
    nested.sh("rm -r in")
    assert nested.restore(saved, with_secrets=True).secrets == ("in/.git/.netrc", "in/.git/config")
    assert config(nested).read_bytes() == before
    assert stat.S_IMODE(config(nested).stat().st_mode) == 0o600
    assert TOKEN in (nested.folder / "in/.git/.netrc").read_text()
    assert nested.sh("git -C in status --porcelain; git -C in log --format=%s") == b"n\n"


def test_without_them_the_repository_inside_still_works(nested: Workspace) -> None:
    saved = nested.save()
    nested.sh("rm -r in")
    nested.restore(saved)
    assert nested.sh(REMOTE) == b"https://github.com/x/y\n"
    assert nested.sh("git -C in config core.bare") == b"false\n"
    assert not (nested.folder / "in/.git/.netrc").exists()
    nested.restore(saved, with_secrets=True)
    assert TOKEN.encode() in nested.sh(REMOTE)


def test_a_restore_leaves_the_settings_that_are_there(nested: Workspace) -> None:
    saved = nested.save()
    nested.sh(
        f"cd in; git config user.name later; git remote set-url origin https://me:{TOKEN}later@h/x; rm n"
    )
    before = config(nested).read_bytes()
    nested.restore(saved)
    assert config(nested).read_bytes() == before
    assert (nested.folder / "in/n").exists()
    nested.restore(saved, with_secrets=True)
    assert b"later" not in config(nested).read_bytes()


@pytest.mark.parametrize("later", ["added", "removed"])
def test_settings_that_get_credentials_or_lose_them_come_back_as_they_were(
    place: Workspace, later: str
) -> None:
    place.sh(NEST)
    first = place.save()
    plain = config(place).read_bytes()
    place.sh(f"cd in; {WITH}")
    second = place.save()
    assert not is_anywhere(place.folder / ".git", TOKEN.encode())
    if later == "added":
        before = place.restore(first).before
        assert config(place).read_bytes() == plain
        assert before is not None
        place.restore(before.commit, with_secrets=True)
    else:
        config(place).write_bytes(plain)
        assert place.save().left_out == ()
        place.restore(second, with_secrets=True)
    assert TOKEN.encode() in place.sh(REMOTE)


def test_the_next_save_without_a_change_is_the_same(nested: Workspace) -> None:
    first = nested.save("beat")
    assert nested.save("beat").commit == first.commit
    nested.anew()
    assert nested.save("beat").commit == first.commit


def test_settings_without_credentials_are_saved_as_they_are(place: Workspace) -> None:
    place.sh(f"{NEST}; git remote add origin https://me@bitbucket.org/x/y; git branch credentials")
    before = config(place).read_bytes()
    saved = place.save()
    assert saved.left_out == ()
    place.sh("rm -r in")
    place.restore(saved)
    assert config(place).read_bytes() == before
    assert place.sh("git -C in branch --format='%(refname:short)'") == b"credentials\nmain\n"
