"""The protocol line by line: each revision gets what it has, and no input costs the next request its answer."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.mcp.revisions import SHAKEN
from tests.mcp.client import META, MODERN, NEWEST, NEWEST_SHAKEN, RawClient
from tests.support.commands import ARGV
from tests.support.environment import TIMEOUT_S, isolate


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    """A server whose run does not answer: what these tests ask needs none."""
    inside = {"OUTLAST_SOCKET": str(tmp_path / "nobody"), "OUTLAST_ATTEMPT": "r.1", "OUTLAST_RUN": "r"}
    with RawClient.start(isolate(tmp_path).environ(**inside), tmp_path) as made:
        yield made


def code(response: Any) -> int:
    found: int = response["error"]["code"]
    return found


def test_a_handshake_agrees_on_what_the_client_speaks_or_on_the_newest_that_has_one(
    client: RawClient,
) -> None:
    for revision in SHAKEN:
        assert client.shake(revision)["protocolVersion"] == revision
    for other in ("2023-01-01", NEWEST, "", "x" * 10_000):
        assert client.shake(other)["protocolVersion"] == NEWEST_SHAKEN
    assert code(client.ask("initialize", {"capabilities": {}})) == -32602
    assert code(client.ask("initialize", {"protocolVersion": 5})) == -32602


@pytest.mark.parametrize("revision", [*SHAKEN, NEWEST])
def test_each_revision_lists_tools_with_what_it_knows_and_no_more(client: RawClient, revision: str) -> None:
    if revision != NEWEST:
        client.shake(revision)
    result = client.ask("tools/list", MODERN if revision == NEWEST else None)["result"]
    tool = result["tools"][0]
    assert ("outputSchema" in tool, "title" in tool) == (
        (True, True) if revision >= "2025-06-18" else (False, False)
    )
    assert ("annotations" in tool) == (revision >= "2025-03-26")
    assert ({"resultType", "ttlMs", "cacheScope", "_meta"} <= set(result)) == (revision == NEWEST)
    assert "$ref" not in json.dumps(result)


def test_a_request_without_a_revision_is_refused_and_with_an_unknown_one_told_which_there_are(
    client: RawClient,
) -> None:
    assert code(client.ask("tools/list")) == -32602
    assert code(client.ask("server/discover")) == -32602
    half = {"_meta": {f"{META}protocolVersion": NEWEST}}
    assert code(client.ask("tools/list", half)) == -32602
    odd = {"_meta": {f"{META}protocolVersion": 7, f"{META}clientCapabilities": {}}}
    assert code(client.ask("tools/list", odd)) == -32602
    other = {"_meta": {f"{META}protocolVersion": "1900-01-01", f"{META}clientCapabilities": {}}}
    refused = client.ask("tools/list", other)
    assert code(refused) == -32022
    assert refused["error"]["data"] == {"supported": [NEWEST, *reversed(SHAKEN)], "requested": "1900-01-01"}


def test_both_kinds_of_revision_are_served_side_by_side(client: RawClient) -> None:
    client.shake()
    found = client.ask("server/discover", MODERN)["result"]
    assert found["supportedVersions"] == [NEWEST]
    assert found["resultType"] == "complete"
    assert found["_meta"][f"{META}serverInfo"]["name"] == "outlast"
    assert client.ask("ping")["result"] == {}
    assert code(client.ask("ping", MODERN)) == -32601  # that revision has none
    assert code(client.ask("server/discover")) == -32601  # nor the other one that
    assert client.ask("tools/list")["result"].keys() == {"tools"}


def test_unknown_methods_are_errors_and_unknown_notifications_nothing(client: RawClient) -> None:
    client.shake()
    for method in ("resources/list", "prompts/list", "logging/setLevel", "x", "", "a" * 5_000):
        assert code(client.ask(method)) == -32601
    client.send({"jsonrpc": "2.0", "method": "notifications/who/knows"})
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "never"}})
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 7})
    client.send({"jsonrpc": "2.0", "id": 77, "result": {}})  # a response to nothing
    assert client.ask("ping")["result"] == {}
    assert code(client.ask("tools/list", {"cursor": "x"})) == -32602
    assert code(client.ask("tools/call", {"name": None})) == -32602


def test_only_the_one_revision_that_has_batches_answers_them(client: RawClient) -> None:
    def ping(number: int) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": "ping"}

    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    client.send([ping(1)])
    assert code(client.receive()) == -32600
    for revision in SHAKEN:
        client.shake(revision)
        client.send([ping(900), told, {"jsonrpc": "2.0", "id": 901, "method": "no"}])
        found = client.receive()
        if revision == "2025-03-26":
            assert [(each["id"], "error" in each) for each in found] == [(900, False), (901, True)]
        else:
            assert code(found) == -32600
    client.shake("2025-03-26")
    client.send([])
    assert code(client.receive()) == -32600
    client.send([ping(number) for number in range(101)])
    assert code(client.receive()) == -32600
    client.send([told, told])  # nothing to answer
    client.send(b'[{"jsonrpc":"2.0","id":3,"method":"\xff"},{"jsonrpc":"2.0","id":4,"method":"ping"}]\n')
    assert [each.get("id") for each in client.receive()] == [None, 4]
    about = {"protocolVersion": NEWEST_SHAKEN, "capabilities": {}}
    client.send([{"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": about}])
    assert code(client.receive()[0]) == -32600
    client.send(
        [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "budget"}} for n in (7, 8)]
    )
    assert [each["result"]["isError"] for each in client.receive()] == [True, True]


DEEP = b"[" * 100_000
GARBAGE = [
    (b"garbage\n", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "pi\n', -32700),
    (b"\xff\xfe{}\n", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}\n', -32700),
    (DEEP + b"\n", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 50_000 + b"\n", -32700),
    (b"7\n", -32600),
    (b"null\n", -32600),
    (b'"text"\n', -32600),
    (b"{}\n", -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": 1}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 5_000 + b', "method": "ping"}\n', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}\n', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": 5}}\n', -32602),
    (b"x" * (5 << 20) + b"\n", -32600),
]


@pytest.mark.parametrize(("line", "expected"), GARBAGE, ids=[repr(line[:40]) for line, _ in GARBAGE])
def test_garbage_is_answered_with_an_error_and_the_next_request_as_ever(
    client: RawClient, line: bytes, expected: int
) -> None:
    client.send(line)
    assert code(client.receive()) == expected
    client.send(b"\n", b"  \n")  # nothing
    assert client.ask("ping")["result"] == {}


def test_lines_may_come_in_pieces_and_several_at_once(client: RawClient) -> None:
    whole = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\r\n' % number for number in range(20))
    for at in range(0, len(whole), 7):
        client.send(whole[at : at + 7])
    assert [client.receive()["id"] for _ in range(20)] == list(range(20))


def test_ids_come_back_as_they_were_given(client: RawClient) -> None:
    for given in ("a", "", "\u00e9\n\u2603", -7, 0, 2**63, 10**39):
        client.send({"jsonrpc": "2.0", "id": given, "method": "ping"})
        assert client.receive()["id"] == given


def test_the_end_of_the_input_is_a_clean_end_and_a_last_line_still_counts(client: RawClient) -> None:
    client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
    assert client.end() == 0
    assert [client.receive()["id"] for _ in range(2)] == [1, 2]
    with pytest.raises(EOFError):
        client.receive()


def test_a_client_that_reads_no_more_ends_it(client: RawClient) -> None:
    client.shake()
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "budget"}})
    assert client.process.wait(TIMEOUT_S) == 0


def test_what_is_printed_beside_the_protocol_does_not_reach_the_client(tmp_path: Path) -> None:
    program = "from outlast.mcp.stdio import Writer; import os; w = Writer(1); print('stray', flush=True); os.system('echo child'); w.write(b'{}')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, timeout=TIMEOUT_S, check=True
    )
    assert (done.stdout, done.stderr) == (b"{}\n", b"stray\nchild\n")


def test_typed_by_a_person_it_says_in_a_line_what_it_is_for(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*ARGV, "mcp"], stdin=theirs, capture_output=True, text=True, env=isolate(tmp_path).environ(), timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error: `outlast mcp` is started by an agent's MCP client")
    assert "outlast run -- " in second
