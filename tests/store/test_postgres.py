"""The PostgreSQL backend: the conformance suite, and what only a server that hosts share can get wrong."""

from collections.abc import Callable

import pytest

from outlast.store import open_store
from outlast.store.protocol import Store
from tests.store.conformance import StoreConformance


class TestPostgres(StoreConformance):
    @pytest.fixture
    def opening(self, postgres_url: str) -> Callable[[], Store]:
        return lambda: open_store(postgres_url)

    @pytest.fixture
    def script(self, postgres_url: str) -> str:
        return f"__import__('outlast.store').store.open_store({postgres_url!r})"
