"""Every format of a token is masked, what only looks random is not, and a megabyte is masked quickly.

The samples are put together here, so that no scanner takes this file for a leak.
"""

import hashlib
import random
import re
import time
import uuid
from base64 import b64encode

import pytest
from hypothesis import given, strategies as st

from outlast.core import secrets
from outlast.core.secrets.formats import FORMATS, SERVICES

MEGABYTE = 1 << 20


def plain(length: int) -> str:
    """Letters and digits."""
    return ("a1B2c3D4e5F6g7H8i9J0kLmNoPqRsTuVwXyZ" * (length // 36 + 1))[:length]


def hexa(length: int) -> str:
    return ("0f1e2d3c4b5a69788796a5b4c3d2e1f0" * (length // 32 + 1))[:length]


def upper(length: int) -> str:
    return plain(length).upper()


# The end of each sample after its beginning, as the maker writes it. A format with more than one beginning is tried with all.
REST = {
    "GitHub token": {"ghp_": plain(36), "github_pat_": plain(22) + "_" + plain(59)},
    "GitLab token": {"glpat-": plain(20), "glcbt-": "64_" + plain(20), "GR1348941": plain(20)},
    "GitLab session": {"_gitlab_session=": hexa(32)},
    "npm token": {"npm_": plain(36)},
    "PyPI token": {"pypi-AgE": "IcHlwaS5vcmc" + plain(60)},
    "RubyGems key": {"rubygems_": hexa(48)},
    "Clojars token": {"CLOJARS_": plain(60).lower()},
    "Artifactory key": {"AKCp": plain(69)},
    "Artifactory token": {"cmVmd": plain(59)},
    "Artifactory password": {"AP": "6" + plain(20)},
    "Sourcegraph token": {"sgp_": hexa(16) + "_" + hexa(40)},
    "Bitbucket password": {"ATBB": plain(32)},
    "Atlassian token": {"ATATT3": plain(180) + "=" + upper(8)},
    "Postman key": {"PMAK-": hexa(24) + "-" + hexa(34)},
    "ReadMe key": {"rdme_": plain(70).lower()},
    "Linear key": {"lin_api_": plain(40)},
    "Notion token": {"ntn_": "12345678901" + plain(35)},
    "Snyk token": {"snyk_uat.": "1a2b3c4d." + plain(40)},
    "Sonar token": {"squ_": hexa(40)},
    "Octopus key": {"API-": upper(26)},
    "Anthropic key": {"sk-ant-": "api03-" + plain(93) + "AA"},
    "API key": {"sk-proj-": plain(74) + "T3Blbk" + "FJ" + plain(74), "sk-": plain(48)},
    "Hugging Face token": {"hf_": plain(34), "api_org_": plain(34)},
    "Perplexity key": {"pplx-": plain(48)},
    "Groq key": {"gsk_": plain(52)},
    "xAI key": {"xai-": plain(80)},
    "Replicate token": {"r8_": plain(37)},
    "AWS key": {"AKIA": upper(16), "A3T": "X" + upper(16)},
    "Bedrock key": {"ABSK": plain(110) + "=", "bedrock-api-key-": plain(40)},
    "Google key": {"AIza": plain(35)},
    "Google token": {"ya29.": plain(80)},
    "Google secret": {"GOCSPX-": plain(28)},
    "Azure key": {"AccountKey=": plain(86) + "=="},
    "Alibaba key": {"LTAI": plain(20)},
    "DigitalOcean token": {"dop_v1_": hexa(64)},
    "Cloudflare key": {"v1.0-": hexa(24) + "-" + hexa(146)},
    "Databricks token": {"dapi": hexa(32) + "-2"},
    "Fly.io token": {"fo1_": plain(43), "fm1a_": plain(120) + "=="},
    "Heroku key": {"HRKU-AA": plain(58)},
    "Scalingo token": {"tk-us-": plain(48)},
    "ClickHouse key": {"4b1d": plain(38)},
    "PlanetScale key": {"pscale_tkn_": plain(43)},
    "Yandex key": {"AQVN": plain(36), "YC": plain(38)},
    "Yandex token": {"t1.": plain(40) + "." + plain(86)},
    "OpenShift token": {"sha256~": plain(43)},
    "Vault token": {"hvs.": plain(95), "s.": plain(24)},
    "Doppler token": {"dp.pt.": plain(43)},
    "Pulumi token": {"pul-": hexa(40)},
    "Prefect key": {"pnu_": plain(36)},
    "Infracost key": {"ico-": plain(32)},
    "Harness key": {"pat.": plain(22) + "." + hexa(24) + "." + plain(20)},
    "Airtable token": {"pat": plain(14) + "." + hexa(64)},
    "1Password key": {"A3-": "-".join([upper(6), upper(11), upper(5), upper(5), upper(5)])},
    "1Password token": {"ops_eyJ": plain(260)},
    "age key": {"AGE-SECRET-KEY-1": upper(58)},
    "Grafana key": {"eyJrIjoi": plain(80)},
    "Grafana token": {"glc_": plain(60) + "=", "glsa_": plain(32) + "_" + hexa(8)},
    "New Relic key": {"NRAK-": upper(27)},
    "Dynatrace token": {"dt0c01.": upper(24) + "." + upper(64)},
    "Sentry token": {"sntrys_": "eyJpYXQiO" + plain(80) + "=_" + plain(43)},
    "Defined Networking key": {"dnkey-": plain(26) + "-" + plain(52)},
    "Authress key": {"sc_": plain(10) + "." + plain(4) + ".acc-" + plain(12) + "." + plain(60)},
    "SettleMint token": {"sm_aat_": plain(16)},
    "intra42 secret": {"s-s4t2ud-": hexa(64)},
    "Slack token": {"xoxa-": "123456789012-" + plain(24), "xapp-": "1-A0123456789-1234567890123-" + hexa(64)},
    "Slack webhook": {"hooks.slack.com/": "services/T" + upper(8) + "/B" + upper(8) + "/" + plain(24)},
    "Discord webhook": {"discord.com/api/webhooks/": "123456789012345678/" + plain(68)},
    "Teams webhook": {"webhook.office.com/webhookb2/": f"{hexa(36)}@{hexa(36)}/IncomingWebhook/{hexa(32)}/{hexa(36)}"},
    "SendGrid key": {"SG.": plain(22) + "." + plain(43)},
    "Sendinblue key": {"xkeysib-": hexa(64) + "-" + plain(16)},
    "Mailgun key": {"key-": hexa(32)},
    "Twilio key": {"SK": hexa(32)},
    "Frame.io token": {"fio-u-": plain(64)},
    "Typeform token": {"tfp_": plain(40) + "_" + plain(18)},
    "Beamer token": {"b_": plain(44)},
    "Telegram token": {"": "123456789:A" + plain(34)},
    "Discord token": {"": "M" + plain(23) + "." + plain(6) + "." + plain(27)},
    "Stripe key": {"sk_live_": plain(24)},
    "Stripe secret": {"whsec_": plain(32)},
    "Square token": {"EAAA": plain(60), "sq0atp-": plain(22)},
    "Facebook token": {"EAAM": plain(120), "": "123456789012345|" + plain(27)},
    "Shopify token": {"shpat_": hexa(32)},
    "Shippo token": {"shippo_live_": hexa(40)},
    "EasyPost key": {"EZAK": plain(54)},
    "Duffel token": {"duffel_test_": plain(43)},
    "Flutterwave key": {"FLWSECK_TEST-": hexa(32) + "-X"},
    "GoCardless token": {"live_": plain(40)},
    "Lob key": {"live_": hexa(35)},
    "Adobe secret": {"p8e-": plain(32)},
    "Dropbox token": {"sl.": plain(135)},
    "Mapbox token": {"pk.": plain(60) + "." + plain(22)},
    "MaxMind key": {"": plain(6) + "_" + plain(29) + "_mmk"},
    "Mailchimp key": {"": hexa(32) + "-us12"},
    "Terraform token": {"": plain(14) + ".atlasv1." + plain(67)},
    "Azure secret": {"": "abc8" + "Q~" + plain(34)},
    "Twitter token": {"A" * 22: "%2F" + plain(80)},
    "JSON web token": {"ey": "J" + plain(30) + ".eyJ" + plain(40) + "." + plain(43), "ZXlK": plain(80)},
}  # fmt: skip


def samples() -> list[tuple[str, str]]:
    """One of each row of the table, and one for each further beginning of its format."""
    found = {(name, start + rest) for name, rests in REST.items() for start, rest in rests.items()}
    for form in FORMATS:
        starts = form.starts or ("",)
        rest = next(REST[form.name][start] for start in starts if start in REST[form.name])
        found.update((form.name, start + rest) for start in starts)
    return sorted(found)


@pytest.mark.parametrize(("name", "token"), samples(), ids=lambda value: value[:24])
def test_every_format_is_masked_wherever_it_stands(name: str, token: str) -> None:
    for before, after in (
        ("", ""),
        ("see ", "\nbye"),
        ('{"k": "', '"}'),
        ("(", ")"),
        ("https://x.example/", ""),
    ):
        if before.endswith("/") and token[:2] in ("AP", "YC"):
            continue  # after a slash these stand in any image in base64
        masked, names = secrets.mask(before + token + after)
        assert names == {name}, masked
        assert masked.startswith(before)
        assert masked.endswith(after)
        assert not any(
            part in masked for part in re.findall(r"[A-Za-z0-9]{20,}", token) if part not in token[:30]
        )
        assert secrets.mask(masked) == (masked, set()), "once is enough"


@pytest.mark.parametrize("service", SERVICES)
def test_a_key_without_a_shape_is_known_by_the_service_it_is_named_for(service: str) -> None:
    for line in (
        f"{service.upper()}_API_KEY={hexa(32)}",
        f'  "{service}_token": "{plain(40)}",',
        f"{service}.client-id = '{plain(20).lower()}'",
        f"{service}: {uuid.UUID(hexa(32))}",
    ):
        masked, names = secrets.mask(line)
        assert len(names) == 1, masked
        assert masked.split("[masked:")[0] in line


OTHERS = {
    f'api_key = "{plain(32)}"': "secret by its name",
    f"X-Api-Key: {plain(24)}": "secret by its name",
    f"export MY_SECRET_KEY={plain(40)}": "secret by its name",
    f"aws_secret_access_key = {plain(20)}/{plain(10)}+{plain(8)}": "secret by its name",
    f"clientSecret: '{plain(24)}'": "secret by its name",
    'password = "correct-horse"': "password",
    "POSTGRES_PASSWORD=hunter22": "password",
    "administrator_login_password = 'S3cure-enough'": "password",
    "curl -s -u ada:hunter22 https://x.example/": "password of a command",
    "curl https://x.example/ --user 'ada:hunter22'": "password of a command",
    '<add key="ClearTextPassword" value="hunter22" />': "password in a configuration",
    f"'secret_key' => 'sk_{plain(10)}!{plain(18)}',": "Freemius key",
    "BUNDLE_GEMS__CONTRIBSYS__COM=" + f"{hexa(8)}:{hexa(8)}": "Sidekiq secret",
    f"https://{hexa(8)}:{hexa(8)}@gems.contribsys.com/": "password in a URL",
    "kind: Secret\nmetadata:\n  name: x\ndata:\n  a: aHVudGVyMg==\n  b: aHVudGVyMg==\n": "Kubernetes secret",
    "apiVersion: v1\ndata:\n  a: aHVudGVyMg==\nkind: Secret\n": "Kubernetes secret",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----": "private key",
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nAAAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----": "private key",
    f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\nAAAA\nPrivate-MAC: {hexa(40)}\n": "private key",
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), OTHERS.items())
def test_a_secret_is_known_by_what_stands_around_it(text: str, name: str) -> None:
    masked, names = secrets.mask(text)
    assert names == {name}, masked
    assert "hunter2" not in masked
    assert "aHVudGVyMg" not in masked
    assert secrets.mask(masked) == (masked, set())


# --- what is no secret --------------------------------------------------------------------------------------------

RANDOM = random.Random(20261116)
HARMLESS = [
    "commit " + hashlib.sha1(b"x").hexdigest() + "\ntree " + hashlib.sha1(b"y").hexdigest(),
    "index 0f1e2d3c..4b5a6978 100644",
    str(uuid.UUID(int=RANDOM.getrandbits(128))),
    "sha256:" + hashlib.sha256(b"x").hexdigest(),
    '"integrity": "sha512-' + b64encode(hashlib.sha512(b"x").digest()).decode() + '"',
    "resolution: {integrity: sha512-" + b64encode(hashlib.sha512(b"y").digest()).decode() + "}",
    'checksum = "' + hashlib.sha256(b"z").hexdigest() + '"',
    '    {url = "https://files.example/x.whl", hash = "sha256:' + hashlib.sha256(b"z").hexdigest() + '"},',
    "h1:" + b64encode(hashlib.sha256(b"go").digest()).decode() + " github.com/facebook/ent v0.14.1-0.20260101",
    '"@sentry/node": "^7.120.3", "@algolia/client-search": "5.12.0", "discord.js": "^14.16.3"',
    "github.com/DataDog/datadog-go/v5 v5.6.0",
    "https://linear.app/acme/issue/ENG-1234/fix-the-parser-of-2026",
    "background: linear-gradient(90deg, rgba(2,0,36,1) 0%, rgba(9,9,121,1) 35%)",
    "interpolation: bilinear, blob_id: 42, trilinear_filter_1234567890: true",
    "def token(self) -> str: ...\n    token = self.tokenizer.next_token(limit=1024)\n    secret = secrets.token_hex(32)",
    "token: str | None = None, api_key: Optional[str], password: SecretStr = Field(...)",
    'password = os.environ["DB_PASSWORD"]; PASSWORD=$DB_PASSWORD; password: ${DB_PASSWORD}',
    'if (secret === undefined) { throw new Error("missing client_secret") }',
    "tokens: 123456789012345678, max_tokens=128000000000000000, cost_microusd=12",
    "docker run -u 1000:1000 -v /a:/b image",
    "s.querySelectorAll(e).forEach(t)",
    "class ApplicationContext2026Test: pass",
    "live_reload_server_with_a_rather_long_name_here = 1",
    "key-value stores, key-0123456789, API-GATEWAY, SKELETON, ACCESSIBILITY",
    "/usr/lib/python3.11/site-packages/hypothesis/internal/conjecture/engine.py:1234",
    "https://example.org/releases/download/v1.0-rc1/outlast-0.1.0-py3-none-any.whl",
    "kind: ConfigMap\ndata:\n  secret: not-here\n",
    "1731751200:2026-11-16T10:00:00Z 12345678901234:abc",
    "sk-learn, ghp_, task-0123456789abcdef0123456789abcdef",
    "ol1_abcdefghijklmnopqrstuvwxyz234567abcd",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS, ids=lambda text: text[:40])
def test_what_only_looks_random_stays_as_it_is(text: str) -> None:
    assert secrets.mask(text) == (text, set())


def image() -> str:
    return "data:image/png;base64," + b64encode(RANDOM.randbytes(MEGABYTE * 3 // 4)).decode()


def minified() -> str:
    names = "abcdefghijklmnopqrstuvwxyz"
    parts = []
    for _ in range(60_000):
        a, b, c = RANDOM.choices(names, k=3)
        parts.append(f'{a}.{b}=function({c}){{return {a}[{RANDOM.randrange(999)}]?{b}:{c}.key||"{a}{b}"}};')
    return "".join(parts)


def lockfile() -> str:
    lines = []
    for number in range(6_000):
        digest = b64encode(RANDOM.randbytes(64)).decode()
        lines.append(
            f'"node_modules/p{number}": {{"version": "1.{number}.0", "resolved": "https://r.example/p-{number}.tgz",'
        )
        lines.append(f' "integrity": "sha512-{digest}"}},')
    return "\n".join(lines)


def shas() -> str:
    return "\n".join(
        f"{RANDOM.randbytes(20).hex()} {uuid.UUID(bytes=RANDOM.randbytes(16))} refs/x" for _ in range(13_000)
    )


LARGE = {"image": image, "minified": minified, "lockfile": lockfile, "shas": shas}


@pytest.mark.parametrize("kind", LARGE)
def test_a_megabyte_without_a_secret_stays_as_it_is_and_takes_a_moment(kind: str) -> None:
    text = LARGE[kind]()[:MEGABYTE]
    assert len(text) > MEGABYTE * 9 // 10
    secrets.mask("")  # compiled once
    began_s = time.process_time()
    assert secrets.mask(text) == (text, set())
    assert time.process_time() - began_s < 3.0


# --- in proportion ------------------------------------------------------------------------------------------------

STARTS = sorted({start for form in FORMATS for start in form.starts})
PIECES = [
    *STARTS, *SERVICES, "api_key=", "token: ", "password='", "curl -u ", "kind: Secret\n", "\ndata:\n", " a: b\n", "-----BEGIN ",
    "PRIVATE KEY-----", "A", "a", "0", "f", "-", "_", ".", "=", "/", "+", ":", "|", "%", "~", " ", "\n", '"', "Q~", "ey", ".ey",
]  # fmt: skip


def took_s(unit: str, chars: int) -> float:
    text = (unit * (chars // len(unit) + 1))[:chars]
    best = float("inf")
    for _ in range(2):
        began_s = time.process_time()
        secrets.mask(text)
        best = min(best, time.process_time() - began_s)
    return best


def is_in_proportion(unit: str) -> bool:
    """Sixteen times the text takes less than eighty times as long, or no time at all."""
    return any(
        many < 0.05 or many < 16 * 5 * took_s(unit, 4_000)
        for many in (took_s(unit, 64_000) for _ in range(2))
    )  # fmt: skip


@pytest.mark.sampled(40)
@pytest.mark.parametrize("unit", PIECES, ids=repr)
def test_no_beginning_repeated_takes_longer_than_in_proportion(unit: str) -> None:
    for tail in ("", "a", "a1", "-", ".", "_x", "0" * 20):
        assert is_in_proportion(unit + tail), unit + tail


@given(
    st.lists(st.sampled_from(PIECES) | st.text("aA0f-_.=/+:|%~ \n\"'", max_size=4), min_size=1, max_size=6)
)
def test_no_mixture_takes_longer_than_in_proportion(parts: list[str]) -> None:
    unit = "".join(parts)
    if unit:
        assert is_in_proportion(unit), repr(unit)
