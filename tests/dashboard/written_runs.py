"""Runs for the tests of pages: written into a store, and what the commands say of them."""

import contextlib
import io
from datetime import UTC, datetime
from random import Random
from typing import Any

from outlast import settings
from outlast.cli.main import main
from outlast.store.protocol import Store
from tests.support.journals.scribe import AgentCli, Scribe

BEGIN = datetime(2026, 3, 1, 22, tzinfo=UTC)


def scribe(rng: Random, agent: AgentCli | None = None, **more: Any) -> Scribe:
    return Scribe(rng, BEGIN, "1411", "/srv/app/.git", "fix the parser", agent, **more)


def put(store: Store, *scribes: Scribe) -> str:
    """The runs in the store; the id of the first."""
    first, *others = [each.journal for each in scribes]
    return store.create(*first, children=others)


def said(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            assert main(list(words)) == 0
    finally:
        settings.tolerate(None)  # as a process that looks does, and this one is others' too
    return out.getvalue()
