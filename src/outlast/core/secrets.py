"""What looks like a secret in a text, by rules that are data, and the text without it. Pure.

The rules know shapes, not meanings: a password that stands alone looks like any other word. Each pattern takes time
in proportion to the text: a literal beginning, then one run of characters, and nothing after it to go back for.
"""

import re
from functools import cache, partial

import msgspec

MARK = "[masked:{}]"


class Rule(msgspec.Struct, frozen=True):
    """A shape. What the group `secret` matches is masked, else all of it.

    A match has one of the `hints` in it, in any case: most texts have none, and looking for them costs almost nothing.
    """

    name: str
    pattern: str
    hints: tuple[str, ...]


_WORD_BEFORE = r"(?<![A-Za-z0-9_])"
_UNMASKED = r"(?!\[masked:)"
RULES = (
    Rule(
        "private key",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----(?s:.*?)"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----|\Z)",  # one that is cut off is as secret
        ("private key",),
    ),
    Rule(
        "authorization",
        rf"(?i:{_WORD_BEFORE}authorization\"?\s{{0,8}}[:=]\s{{0,8}}\"?(?:bearer|basic|token)\s{{1,8}})"
        rf"(?P<secret>{_UNMASKED}[^\s\"',;]{{6,}})",
        ("authorization",),
    ),
    Rule(
        "bearer token",
        rf"(?i:{_WORD_BEFORE}bearer\s{{1,8}})(?=[A-Za-z._~+/-]{{0,64}}[0-9])"
        r"(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)",
        ("bearer",),
    ),
    Rule(
        "password in a URL",
        rf"://[^\s/:@\"']{{0,128}}:(?P<secret>{_UNMASKED}[^\s/@\"']{{1,256}})(?=@)",
        ("://",),
    ),
    Rule(
        "secret in a URL",
        r"(?i:[?&;](?:password|passwd|pwd|secret|client_secret|token|access_token|refresh_token|auth_token|api_?key)=)"
        rf"(?P<secret>{_UNMASKED}[^&;#\s\"']+)",
        ("password=", "passwd=", "pwd=", "secret=", "token=", "api_key=", "apikey="),
    ),
    Rule(
        "GitHub token",
        rf"{_WORD_BEFORE}(?:gh[pousr]_[A-Za-z0-9]{{36,}}|github_pat_[A-Za-z0-9_]{{22,}})",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    Rule("GitLab token", rf"{_WORD_BEFORE}glpat-[A-Za-z0-9_-]{{20,}}", ("glpat-",)),
    Rule("Anthropic key", rf"{_WORD_BEFORE}sk-ant-[A-Za-z0-9_-]{{20,}}", ("sk-ant-",)),
    Rule(
        "API key",
        rf"{_WORD_BEFORE}sk-(?:(?:proj|svcacct|admin|or)-[A-Za-z0-9_-]{{20,}}|[A-Za-z0-9]{{20,}})",
        ("sk-",),
    ),
    Rule("Slack token", rf"{_WORD_BEFORE}xox[abeoprs]-[A-Za-z0-9-]{{10,}}", ("xox",)),
    Rule("AWS key", rf"{_WORD_BEFORE}(?:AKIA|ASIA)[A-Z0-9]{{16}}(?![A-Za-z0-9])", ("akia", "asia")),
    Rule("Google key", rf"{_WORD_BEFORE}AIza[A-Za-z0-9_-]{{35}}", ("aiza",)),
    Rule("npm token", rf"{_WORD_BEFORE}npm_[A-Za-z0-9]{{36,}}", ("npm_",)),
    Rule("Hugging Face token", rf"{_WORD_BEFORE}hf_[A-Za-z0-9]{{30,}}", ("hf_",)),
)

# A string in JSON, and whether it names a field.
_STRING = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?')
Names = frozenset[str]
NONE: Names = frozenset()


@cache
def _compiled() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    return tuple((rule, re.compile(rule.pattern)) for rule in RULES)


def mask(text: str) -> tuple[str, Names]:
    """The text with every secret in it replaced by a mark that says of which kind it was, and these kinds."""
    found: set[str] = set()
    lower = text.lower()
    for rule, pattern in _compiled():
        if not any(hint in lower for hint in rule.hints):
            continue
        text, count = pattern.subn(partial(_marked, MARK.format(rule.name)), text)
        if count:
            found.add(rule.name)
    return text, frozenset(found)


def _marked(mark: str, match: re.Match[str]) -> str:
    start, end = match.span("secret" if "secret" in match.re.groupindex else 0)
    whole, at = match[0], match.start()
    return whole[: start - at] + mark + whole[end - at :]


def mask_json(data: bytes) -> tuple[bytes, Names]:
    """The same for the texts in a JSON document. Names of fields and everything else stay byte for byte."""
    found: set[str] = set()

    def masked(match: re.Match[bytes]) -> bytes:
        if match[2] is not None:
            return match[0]
        try:
            text, names = mask(msgspec.json.decode(match[1], type=str))
        except msgspec.DecodeError:
            return halved(match)
        found.update(names)
        return msgspec.json.encode(text) if names else match[0]

    def halved(match: re.Match[bytes]) -> bytes:
        """Half a character, as in what an agent cut off; no text of ours has one."""
        import json

        try:
            text, names = mask(json.loads(match[1].decode("utf-8", "surrogateescape"), strict=False))
        except ValueError:
            return match[0]
        found.update(names)
        return json.dumps(text).encode() if names else match[0]

    return _STRING.sub(masked, data), frozenset(found)
