"""The conformance suite is no test module by name, but its assertions should explain themselves."""

import pytest

pytest.register_assert_rewrite(
    "tests.store.conformance",
    "tests.store.conformance_looks",
    "tests.store.conformance_races",
    "tests.store.conformance_shelf",
)
