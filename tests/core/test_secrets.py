"""What looks like a secret is masked, what does not is left, and no text takes long."""

import time

import msgspec
import pytest
from hypothesis import given, strategies as st

from outlast.core import secrets

# Made up here, so that no scanner takes this file for a leak.
A40 = "a1B2c3D4e5" * 4
PEM = "-----BEGIN {0}PRIVATE KEY-----\nMIIEow" + A40 + "\n{1}"
CASES = {
    "ghp_" + A40: "GitHub token",
    "gho_" + A40: "GitHub token",
    "github_pat_" + A40: "GitHub token",
    "glpat-" + A40: "GitLab token",
    "sk-ant-api03-" + A40: "Anthropic key",
    "sk-proj-" + A40: "API key",
    "sk-" + A40: "API key",
    "xoxb-" + A40: "Slack token",
    "AKIA" + "A1B2C3D4E5F6G7H8": "AWS key",
    PEM.format("RSA ", "-----END RSA PRIVATE KEY-----"): "private key",
    PEM.format("", "-----END PRIVATE KEY-----"): "private key",
    PEM.format("OPENSSH ", ""): "private key",
}
INSIDE = {
    "Authorization: Bearer " + A40: ("Authorization: Bearer ", "authorization"),
    "authorization=token " + A40: ("authorization=token ", "authorization"),
    "Bearer " + A40: ("Bearer ", "bearer token"),
    "git clone https://ada:hunter2@example.org/x": ("git clone https://ada:", "password in a URL"),
    "postgres://ada:p:w@db/x": ("postgres://ada:", "password in a URL"),
    "https://example.org/?q=1&access_token=hunter2&x=2": (
        "https://example.org/?q=1&access_token=",
        "secret in a URL",
    ),
}
HARMLESS = [
    "",
    "ask-the-model-about-the-risk-of-a-task-" + "x" * 40,
    "the bearer of this letter is well-known-to-everybody-here",
    "Authorization: none",
    "https://example.org:8080/a@b",
    "https://example.org/?page_token_count=3&tokens=5",
    "mailto:ada@example.org, see http://example.org/",
    "ghp_short, sk-, AKIA, xoxb-",
    "ol1_abcdefghijklmnopqrstuvwxyz234567abcd",
    "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
]


@pytest.mark.parametrize(("text", "name"), CASES.items())
def test_a_secret_is_masked_wherever_it_stands(text: str, name: str) -> None:
    mark = secrets.MARK.format(name)
    for before, after in (("", ""), ("see ", "\nbye"), ('{"k": "', '"}'), ("(", ")")):
        cut_off = "PRIVATE KEY" in text and "END" not in text
        expected = before + mark + ("" if cut_off else after)
        assert secrets.mask(before + text + after) == (expected, {name})


@pytest.mark.parametrize(("text", "kept", "name"), [(text, *rest) for text, rest in INSIDE.items()])
def test_of_a_secret_with_a_name_only_the_secret_is_masked(text: str, kept: str, name: str) -> None:
    masked, names = secrets.mask(f"<{text}>")
    assert names == {name}
    assert masked.startswith(f"<{kept}{secrets.MARK.format(name)}")
    assert "hunter2" not in masked
    assert A40 not in masked


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert secrets.mask(text) == (text, set())


@pytest.mark.parametrize("text", [*CASES, *INSIDE])
def test_what_is_masked_is_not_masked_again(text: str) -> None:
    masked, _ = secrets.mask(text)
    assert secrets.mask(masked) == (masked, set())


def test_in_json_only_texts_change_and_the_rest_stays_byte_for_byte() -> None:
    text = f'"say \\"hi\\" to ghp_{A40}\\n\\u00e9"'
    data = f'{{"ghp_{A40}":1.50, "n" : 1e400,"t":[{text}, "é"]}}'.encode()
    masked, names = secrets.mask_json(data)
    assert names == {"GitHub token"}
    assert masked == data.replace(text.encode(), '"say \\"hi\\" to [masked:GitHub token]\\né"'.encode())
    pem = msgspec.json.encode({"key": PEM.format("", "-----END PRIVATE KEY-----")})
    assert secrets.mask_json(pem)[0] == b'{"key":"[masked:private key]"}'


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.sampled_from([*CASES, *INSIDE]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=json)
def test_masked_json_is_json_of_the_same_shape(value: object) -> None:
    data = msgspec.json.encode(value)
    masked, names = secrets.mask_json(data)
    assert _shape(msgspec.json.decode(masked)) == _shape(value)
    assert (masked == data) == (not names)


def _shape(value: object) -> object:
    match value:
        case dict():
            return {name: _shape(inner) for name, inner in value.items()}
        case list():
            return [_shape(inner) for inner in value]
        case str():
            return "text"
        case _:
            return value


HOSTILE = [
    "ghp_", "github_pat_", "sk-", "sk-ant-", "sk-proj-", "xoxb-", "AKIA", "glpat-", "a", "-", " ", "=", ":", "@", "/",
    "://", "://a:", "://a:b", "?token=", "bearer ", "Bearer a", "authorization", "authorization: ",
    "authorization: bearer ", "-----", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY",
    "-----END PRIVATE KEY", "curl -u ", "curl -u a:b ", "curl ", 'curl -d "', "mysql -p", "X_TOKEN=", 'X_TOKEN="', "--password ", "--token='",
    "Cookie: a=", '["curl",', '["', "password=", "docker login -p x; ", '"', "\\", '\\"', "[masked:", "AAAA ",
]  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("unit", HOSTILE)
def test_no_text_takes_longer_than_in_proportion(unit: str) -> None:
    """Sixteen times the text: quadratic would be 256 times as long."""
    few, many = _took_s(unit, 10_000), _took_s(unit, 160_000)
    assert many < 16 * 5 * few, f"{many / few:.0f} times as long"


def _took_s(unit: str, chars: int) -> float:
    text = unit * (chars // len(unit))
    data = msgspec.json.encode(text)
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        secrets.mask(text)
        secrets.mask_json(data)
        best = min(best, time.process_time() - started)
    return best
