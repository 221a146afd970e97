"""Keys in an agent's calls are masked wherever they are shown or told to another session, and nowhere else."""

import json
from pathlib import Path

import msgspec
import pytest

from outlast.agents.events import ToolEnd
from outlast.core import secrets
from outlast.dashboard.run import effects as effect_pages, pages
from outlast.inspect import find, show, words
from tests.supervisor.hook_driver import AttemptDies, before, minded

TOKEN = "sk-ant-api03-" + "q7Zp" * 20
PASSWORD = "hunter2hunter2"
POST = f"curl -sS -X POST -H 'Authorization: Bearer {TOKEN}' -u me:{PASSWORD} -d x https://host.test/x"
LOCAL = f"DEPLOY_TOKEN={PASSWORD} ./local.sh"
KEYS = (TOKEN, PASSWORD)


def test_a_key_of_a_call_is_masked_in_all_that_shows_or_tells_it(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.start()
        assert there.allows(before("claude", POST))
        there.take(ToolEnd("call_1", True, f"accepted, your key is {TOKEN}"))
        assert there.allows(before("claude", LOCAL, call="call_2"))
        store, run = there.run.journal.store, there.run.id
        summary = find.find(store, run, "")
        events = [item.event for item in store.read(run, after=0).events]
        told = {
            "show": msgspec.json.encode(show.full(store, summary)),
            "effects": msgspec.json.encode(show.effects(store, summary)),
            "page": msgspec.json.encode(effect_pages.effects(store, run)),
            "journal": msgspec.json.encode(pages.journal(store, run)),
            "log": "\n".join(map(words.words, events)).encode(),
            "context": there.run.context().encode(),
        }
        found = [name for name, text in told.items() if any(key.encode() in text for key in KEYS)]
        assert found == [], {name: told[name] for name in found}
        assert b"[masked:" in told["effects"]
        raw = b"".join(bytes(show.raw(store, event.args)) for event in there.intents())
        assert all(key.encode() in raw for key in KEYS)  # what is matched and resumed has them
        raise AttemptDies


def test_a_key_in_a_result_is_masked_in_the_context(tmp_path: Path) -> None:
    with minded(tmp_path) as there:
        there.start()
        assert there.run.beat is not None
        there.run.beat.done({"text": f"the key is {TOKEN}"})
        assert "[masked:" in there.run.context()
        assert TOKEN not in there.run.context()
        raise AttemptDies


@pytest.mark.parametrize(
    "text",
    [
        f"curl -u me:{PASSWORD} https://host.test", f"wget --user me:{PASSWORD} https://host.test", f"http -a me:{PASSWORD} host.test",
        f"export STRIPE_KEY={PASSWORD}", f"DB_PASSWORD='{PASSWORD}' run", f"NPM_TOKEN={PASSWORD}", f"APP_SECRET={PASSWORD}",
    ],
)  # fmt: skip
def test_a_password_of_a_command_or_a_variable_is_masked(text: str) -> None:
    masked, kinds = secrets.mask(text)
    assert PASSWORD not in masked
    assert kinds
    assert PASSWORD not in secrets.mask_json(json.dumps({"command": text}).encode())[0].decode()


@pytest.mark.parametrize(
    "text",
    ["PRIMARY_KEY=customer_id", "docker run -u 1000:1000 image", "NPM_TOKEN=$NPM_TOKEN", "CACHE_KEY=linux-x64-deps", "MY_KEY=${KEY}"],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert secrets.mask(text) == (text, secrets.NONE)
