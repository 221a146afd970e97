"""The conformance suite is no test module by name, but its assertions should explain themselves."""

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite(
    "tests.store.conformance",
    "tests.store.conformance_looks",
    "tests.store.conformance_races",
    "tests.store.conformance_shelf",
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[object]:
    """A PostgreSQL of this worker's own. A visible skip where there can be none."""
    from tests.support import postgres

    with postgres.server() as made:
        yield made


@pytest.fixture
def postgres_url(postgres_server: object) -> Iterator[str]:
    """The URL of a new, empty store."""
    from tests.support.postgres import PostgresServer

    assert isinstance(postgres_server, PostgresServer)
    name = postgres_server.store()
    yield postgres_server.url(name)
    postgres_server.drop(name)
