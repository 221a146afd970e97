"""Which texts hold a key: every known format wherever it stands, and nothing that agents and tools write all day.

The samples are put together here, so that no scanner takes this file for a leak.
"""

import random
import string
import time
import uuid
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from outlast.core.secrets.formats import FORMATS, SERVICES
from outlast.workspace import secret_texts
from outlast.workspace.secret_texts import KeySearch, key_in
from tests.core.test_secret_formats import hexa, plain, samples

AROUND = {
    "prose": "Use the token {} to log in.\nIt is good for a day.\n",
    "environment": "# mine\nA=1\nSERVICE_TOKEN={}\n",
    "JSON": '{{"name": "x", "nested": {{"k": "{}"}}}}\n',
    "YAML": "a:\n  - k: {}\n",
    "YAML, quoted": "a:\n  k: '{}'\n",
    "shell": "export T='{}' && curl -H \"X-Key: $T\" https://h.example/\n",
    "Python": "client = Client({!r}, retries=3)\n",
    "Markdown": "| key | `{}` |\n",
    "log": "2026-11-16T10:00:00Z INFO sent [{}] to upstream\n",
    "Windows": "KEY={}\r\nOTHER=1\r\n",
    "minified": "a=1;var t=\"{}\";f(t)",
}  # fmt: skip
GITHUB = "ghp_" + plain(36)
BODY = "".join(
    f"{line}\n"
    for line in ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "Zx81qRt" * 9)
)
BEGIN, END = "-----BEGIN {}PRIVATE " + "KEY{}-----", "-----END {}PRIVATE " + "KEY{}-----"


def pem(kind: str = "", block: str = "", body: str = BODY) -> str:
    return f"{BEGIN.format(kind, block)}\n{body}{END.format(kind, block)}\n"


@pytest.mark.parametrize("around", AROUND)
def test_every_format_is_found_wherever_it_stands(around: str) -> None:
    text = AROUND[around]
    assert {name: key_in(text.format(token).encode()) for name, token in samples()} == {
        name: name for name, _ in samples()
    }
    assert all(key_in(text.format(token).encode()) for _, token in samples())


@pytest.mark.parametrize("service", SERVICES)
def test_a_key_beside_the_name_of_its_service_is_found(service: str) -> None:
    for line in (
        f"{service.upper()}_API_KEY={hexa(32)}",
        f'  "{service}_token": "{plain(40)}",',
        f"{service}.client-id = '{plain(20).lower()}'",
        f"{service}Secret: {uuid.UUID(hexa(32))}",
    ):
        assert key_in(line.encode()), line


PRIVATE = {
    "plain": pem(),
    "RSA": "notes\n\n" + pem("RSA "),
    "encrypted": pem("RSA ", body="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n" + BODY),
    "OpenSSH": pem("OPENSSH "),
    "PGP": pem("PGP ", " BLOCK", "Version: GnuPG v2\nComment: mine\n\n" + BODY),
    "Windows": pem().replace("\n", "\r\n"),
    "JSON": '{"type": "service_account", "private_key": "' + pem().replace("\n", "\\n") + '"}',
    "YAML": "key: |\n" + "".join(f"  {line}\n" for line in pem().splitlines()),
    "cut off": BEGIN.format("", "") + "\n",
    "after much text": "x = 1\n" * 50_000 + pem("EC "),
    "PuTTY": "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_private_key_is_found(kind: str) -> None:
    assert key_in(PRIVATE[kind].encode()) == secret_texts.PRIVATE_KEY


RANDOM = random.Random(20261116)
HARMLESS = {
    "AWS's own example": "aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n",
    "jwt.io's example": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "Stripe's example": "curl https://api.stripe.com/v1/charges -u sk_" + "test_4eC39HqLyjWDarjtT1zdp7dc:\n",
    "Google's example": "'mapsApiKey': 'AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY'",
    "GitHub's example": "Authorization: token ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "Slack's example": "https://hooks.slack.com/services/T00000000/B00000000/" + "X" * 24,
    "crosses": "GITHUB_TOKEN=ghp_" + "x" * 36 + "\nOPENAI_API_KEY=sk-" + "0" * 48 + "\nSTRIPE=sk_live_" + "*" * 24,
    "in a row": "GITHUB_TOKEN=ghp_" + "0123456789abcdef0123456789abcdef0123" + "\nK=sk-" + string.ascii_letters,
    "words": "sk-ant-your-key-goes-here-1A\nsk-proj-test-key-for-ci-1234X\nghp_fakeTokenForOurTests0000000000000000\nxoxb-dummy-1234-A",
    "heads of keys in a source": f'BEGIN = "{BEGIN.format("RSA ", "")}"\nif line.startswith(b"{BEGIN.format("OPENSSH ", "")}"):\n',
    "a key left out in a manual": "```\n" + pem("RSA ", body="...\n") + "```\n" + pem(body="XXXX\nXXXX\n"),
    "a certificate": pem().replace("PRIVATE " + "KEY", "CERTIFICATE"),
    "public keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGQ0bnJhbmRvbWx5LW1hZGUtdXAtYnl0ZXM= me@host\n" + pem().replace("PRIVATE " + "KEY", "PUBLIC KEY"),
    "UUIDs": "\n".join(str(uuid.UUID(int=RANDOM.getrandbits(128))) for _ in range(3_000)),
    "digests": "\n".join(f"{RANDOM.randbytes(20).hex()}  {RANDOM.randbytes(32).hex()}  f{n}" for n in range(3_000)),
    "a RECORD": "\n".join(f"p/{n}.py,sha256={urlsafe_b64encode(RANDOM.randbytes(32)).decode().rstrip('=')},{n}" for n in range(20_000))
    + "\np/a.py,sha256=AP" + "EFg0Yx7pjnCLig5YMnBSZSw5yf8xybm2pd4uG44rw,7\n",
    "package-lock.json": "".join(
        f'"node_modules/p{n}": {{"version": "1.{n}.0", "resolved": "https://registry.npmjs.org/p{n}/-/p{n}-1.{n}.0.tgz",'
        f' "integrity": "sha512-{b64encode(RANDOM.randbytes(64)).decode()}"}},\n' for n in range(4_000)),
    "yarn.lock": "".join(
        f'"@sentry/p{n}@^7.1.{n}":\n  version "7.1.{n}"\n  resolved "https://registry.yarnpkg.com/@sentry/p{n}.tgz#{RANDOM.randbytes(20).hex()}"\n'
        f"  integrity sha512-{b64encode(RANDOM.randbytes(64)).decode()}\n" for n in range(2_000)),
    "uv.lock": "".join(
        f'    {{ url = "https://files.pythonhosted.org/packages/{RANDOM.randbytes(1).hex()}/{RANDOM.randbytes(30).hex()}/p-{n}-py3-none-any.whl",'
        f' hash = "sha256:{RANDOM.randbytes(32).hex()}", size = {n} }},\n' for n in range(3_000)),
    "go.sum": "".join(
        f"github.com/DataDog/datadog-go/v5 v5.{n}.0 h1:{b64encode(RANDOM.randbytes(32)).decode()}\n" for n in range(3_000)),
    "a log": "".join(
        f"2026-11-16T10:{n % 60:02}:00.123Z INFO [trace={RANDOM.randbytes(16).hex()} span={RANDOM.randbytes(8).hex()}] GET"
        f" /api/v1/items/{uuid.UUID(int=RANDOM.getrandbits(128))}?page={n} 200 {n}ms\n" for n in range(5_000)),
    "CSV": "".join(
        f"{n},user{n}@example.org,{RANDOM.random()},{RANDOM.randbytes(12).hex()},2026-11-{n % 30 + 1:02}T00:00:00+00:00\n" for n in range(5_000)),
    "a notebook": '{"cells": [{"outputs": [{"data": {"image/png": "' + b64encode(RANDOM.randbytes(1 << 20)).decode()
    + '"}}], "source": ["df.head()"]}], "metadata": {}}',
    "a source map": '{"version":3,"mappings":"' + ";".join("AAAA,SAASA,IAAI,CAACC,MAAM" for _ in range(30_000)) + '"}',
    "minified": "".join(
        f'{a}.{b}=function({c}){{return {a}[{n}]?{b}:{c}.key||"{a}{b}"}};' for n in range(20_000)
        for a, b, c in [RANDOM.choices(string.ascii_letters, k=3)]),
    "UTF-8": "# Schlüssel für Müller: ключ 鍵 🔑\n" * 1_000,
}  # fmt: skip


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_agents_and_tools_write_holds_no_key(kind: str) -> None:
    assert key_in(HARMLESS[kind].encode()) == ""


# -- what is looked at ---------------------------------------------------------------------------------------------


def test_only_text_is_looked_at() -> None:
    token = GITHUB.encode()
    probe = secret_texts.TEXT_PROBE_BYTES
    assert key_in(b"\0" + token) == ""
    assert key_in(b"a " * (probe // 2 - 1) + b"\0 " + token) == ""
    assert key_in(b"a " * (probe // 2) + b"\0 " + token) == "GitHub token"


def test_a_file_is_looked_at_up_to_a_limit() -> None:
    token, most = b" " + GITHUB.encode() + b" ", secret_texts.LOOKED_AT_BYTES
    for chunks in ([1 << 18], [most * 2]):
        assert found(b"x" * (most - len(token)) + token, chunks) == "GitHub token"
        assert found(b"x" * most + token, chunks) == ""


def found(data: bytes, sizes: list[int]) -> str:
    """What is found where the text comes in chunks of these sizes, again and again."""
    search, at, kind = KeySearch(), 0, ""
    for size in sizes * (len(data) // sum(sizes) + 1):
        kind = kind or search.feed(data[at : at + size], last=at + size >= len(data))
        at += size
    return kind


@settings(max_examples=60)
@given(
    before=st.integers(0, 20_000),
    after=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1_000, 9_000), min_size=1, max_size=3),
    token=st.sampled_from([GITHUB, f"DATADOG_API_KEY={hexa(32)}", pem(), "AKIA" + plain(16).upper(), "AKIA" + plain(60).upper()]),
    filler=st.sampled_from(["a ", "a", "A1", "-", "x=1\n", "AKIA"]),
)  # fmt: skip
def test_chunks_make_no_difference(
    before: int, after: int, sizes: list[int], token: str, filler: str
) -> None:
    data = ((filler * before)[:before] + f" {token} " + (filler * after)[:after]).encode()
    assert found(data, sizes) == key_in(data)


@pytest.mark.parametrize(
    "token", [GITHUB, f'"datadog_key": "{hexa(32)}"', pem()], ids=["token", "service", "private key"]
)
def test_a_key_is_found_wherever_a_chunk_ends(token: str) -> None:
    data = b"x = 1\n" * 2_000 + token.encode() + b"\nx = 1" * 2_000
    assert all(found(data, [size, 1 << 20]) for size in range(11_950, 12_100 + len(token)))
    ahead = 4_096  # of a chunk's end is looked at with the next chunk
    assert all(found(data, [size + ahead, 1 << 20]) for size in range(11_950, 12_100 + len(token)))


# -- in proportion -------------------------------------------------------------------------------------------------

STARTS = sorted({start for form in FORMATS for start in form.starts})
UNITS = [
    "a", "A", "A1", "1", "=", "=A1", ":=A1", "\"'", '\\"', "'{\"", "-----BEGIN ", BEGIN.format("", ""), BEGIN.format("RSA ", "") + "\n",
    "PRIVATE " + "KEY", "AKIA" + plain(15).upper() + " ", "AKIAIOSFODNN7EXAMPLE ", "ghp_" + plain(35) + " ", "ghp_" + "x" * 36 + "\n",
    "sha256=APEF" + plain(39) + "\n", 'datadog_key="' + "a" * 25 + '1" ', "x_-." * 19 + "=" + plain(20) + "\n", "ey" + plain(17) + ".",
    "A1" + "a" * 18 + " ", "\n", "~", "Q~", "-ey", ".eyJ", *(f"-{start}" for start in STARTS), *(f"-{start}A1" for start in STARTS),
]  # fmt: skip


def took_s(unit: str, size: int, tries: int = 2) -> float:
    data = (unit.encode() * (size // len(unit) + 1))[:size]
    best = float("inf")
    for _ in range(tries):
        began_s = time.process_time()
        found(data, [1 << 18])
        best = min(best, time.process_time() - began_s)
    return best


@pytest.mark.sampled(40)
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_no_text_takes_longer_than_in_proportion(unit: str) -> None:
    """Sixteen times the text takes less than eighty times as long, or no time at all."""
    assert any(
        many < 0.05 or many < 80 * took_s(unit, 1 << 15) for many in (took_s(unit, 1 << 19) for _ in range(2))
    )


@pytest.mark.parametrize("unit", ["a", "\\\"'", "AKIAIOSFODNN7EXAMPLE "], ids=repr)
def test_a_file_as_large_as_any_is_looked_at_within_seconds(unit: str) -> None:
    assert took_s(unit, secret_texts.LOOKED_AT_BYTES, tries=1) < 10


def test_a_plain_source_takes_a_moment() -> None:
    data = Path(__file__).read_bytes() * 100
    began_s = time.process_time()
    key_in(data)
    assert time.process_time() - began_s < len(data) / 1e6 * 0.1
