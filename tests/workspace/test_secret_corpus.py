"""Of many thousand texts without a secret, fewer than 1 in 1,000 is taken for one that holds a key.

The texts are what this machine has of the kinds that agents leave untracked: source, packages with their lists of
digests, minified scripts, documents, public certificates, settings, logs and data."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.workspace import rules, secret_texts
from tests.support.environment import ROOT

FILE_BYTES_MAX = 10 << 20  # as much as a save takes
FALSE_MAX = 0.001
AGENTS = Path.home() / ".cache/outlast-agents"
PLACES = {
    "this repository": [ROOT / name for name in ("src", "tests", "docs", "tools", "examples", "benchmarks")],
    "the environment": [Path(sysconfig.get_path("purelib")), Path(os.__file__).parent],
    "the system": [Path("/usr/share"), Path("/etc/ssl/certs")],
    "the agents": [AGENTS],
}
HOLD_ONE = ("tests/gateway/endpoints.py",)  # a token that looks real on purpose
SHOWN_MAX = 20


def texts(places: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Every text below these places whose name says nothing, each content once."""
    seen: set[int] = set()
    for place in places:
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if (
                    rules.is_secret_name(os.fsencode(path))
                    or os.path.islink(path)
                    or not os.path.isfile(path)
                    or not 0 < os.path.getsize(path) <= FILE_BYTES_MAX
                ):
                    continue
                data = Path(path).read_bytes()
                if b"\0" not in data[: secret_texts.TEXT_PROBE_BYTES] and hash(data) not in seen:
                    seen.add(hash(data))
                    yield path, data


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", PLACES)
def test_fewer_than_one_in_a_thousand_texts_is_taken_for_a_secret(place: str) -> None:
    count, wrong = 0, list[str]()
    for path, data in texts(PLACES[place]):
        count += 1
        kind = secret_texts.key_in(data)
        if kind and not path.endswith(HOLD_ONE):
            wrong.append(f"{path}: {kind}")
    if not count:
        pytest.skip(f"{place} has no texts here")
    print(f"{place}: {len(wrong)} of {count:,} texts", *wrong[:SHOWN_MAX], sep="\n  ", file=sys.stderr)
    assert len(wrong) <= max(1, count * FALSE_MAX), wrong[:SHOWN_MAX]
