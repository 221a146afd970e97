"""The supervisor's socket format: whole messages round trip, anything else is refused."""

import msgspec
import pytest
from hypothesis import given, strategies as some

from outlast.errors import UsageError
from outlast.supervisor.launch import environment
from outlast.supervisor.socket import wire

MESSAGES = [
    wire.Intent(call="c1", name="Bash", signature="push origin refs/heads/x", input=msgspec.Raw(b'{"a":1}')),
    wire.Outcome(call="c1", finding="happened", result=msgspec.Raw(b"[1]")),
    wire.Budget(attempt="r.3"),
    wire.Note(kind="stage", text="tests written"),
    wire.Verdict(allowed=False, reason="the outcome of this call is unknown"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_being_cut_into_any_two_pieces(message: wire.AnyMessage) -> None:
    framed = wire.frame(message)
    for cut in range(len(framed)):
        assert wire.unframe(framed[:cut]) == (None, framed[:cut])
    assert wire.unframe(framed + b"next") == (message, b"next")


@given(some.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_and_never_guessed(data: bytes) -> None:
    try:
        message, rest = wire.unframe(data)
    except UsageError:
        return
    assert message is None
    assert rest == data


def test_a_newer_version_and_an_oversized_frame_are_refused() -> None:
    body = msgspec.json.encode({"type": "budget", "version": wire.VERSION + 1})
    with pytest.raises(UsageError, match="newer"):
        wire.unframe(len(body).to_bytes(4, "big") + body)
    with pytest.raises(UsageError, match="too large"):
        wire.unframe((wire.FRAME_MAX_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(UsageError, match="too large"):
        wire.frame(wire.Note(kind="text", text="x" * (wire.FRAME_MAX_BYTES + 1)))


def test_the_environment_of_an_agent_names_its_attempt() -> None:
    given_to_agent = environment.for_agent(
        run="k7", task="1411", epoch=3, socket="s", store="st", budget_file="b"
    )
    assert given_to_agent["OUTLAST_ATTEMPT"] == "k7.3"
    assert set(given_to_agent) == {
        "OUTLAST_RUN", "OUTLAST_TASK", "OUTLAST_ATTEMPT", "OUTLAST_SOCKET", "OUTLAST_STORE", "OUTLAST_BUDGET_FILE",
    }  # fmt: skip
