"""What a program is given, where its class has no rule of its own for that: its words, the files that these name, its settings.
Where the words do not hold all that it sends (a folder, an image, a state on this machine), the same words are not the same call.
"""

import os
import stat
from collections.abc import Collection, Iterator

from outlast.agents.outward import content
from outlast.agents.outward.rules import Rule, whole_option
from outlast.agents.outward.shell.programs import Call

FILE_MAX = 8 << 20
FILES_MAX = 64
# Variables that lead a call elsewhere than its words say.
STEERING = (
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AZURE_DEFAULTS_GROUP", "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "CLOUDSDK_CORE_PROJECT", "FLY_APP", "HEROKU_APP", "KUBECONFIG", "KUBECONTEXT", "HELM_KUBECONTEXT", "HELM_NAMESPACE",
    "PGDATABASE", "PGHOST", "PGPORT", "PGSERVICE", "PGUSER", "MYSQL_HOST", "MYSQL_TCP_PORT", "PULUMI_STACK", "TF_WORKSPACE",
    "VAULT_ADDR", "VAULT_NAMESPACE", "VERCEL_PROJECT_ID", "NETLIFY_SITE_ID", "CLOUDFLARE_ACCOUNT_ID", "NOMAD_ADDR", "DOKKU_HOST",
)  # fmt: skip
# What only changes how a program tells of its work.
_NEUTRAL = frozenset(
    "--verbose --quiet --silent --no-progress --progress --color --no-color --colour --debug --yes --no-input".split()
)


def words(call: Call, rule: Rule, *, whole: bool = False) -> str:
    """The content of a call by its words. It is whole only where they, and the files that they name, hold all that it sends."""
    if call.fed or not all(word.known for word in call.words):
        return ""
    rest: dict[str, bytes | None] = {} if whole or rule.whole else {"rest": None}
    return content.of(
        words=content.packed(_normal(call, rule)), env=_steering(call), files=files(call), **rest
    )


def _normal(call: Call, rule: Rule) -> list[str]:
    """The words in their order: each option by one name, without those that do not matter."""
    found: list[str] = []
    for word in call.words:
        name, equals, value = word.partition("=")
        name = whole_option(rule, name)
        if name in _NEUTRAL:
            continue
        if name in rule.values:
            found += [f"--{rule.values[name]}", *([value] if equals else [])]
        elif not word.startswith("--") and word[:2] in rule.values:
            found += [f"--{rule.values[word[:2]]}", word[2:]]
        else:
            found.append(word)
    return found


def _steering(call: Call) -> bytes:
    return content.packed(
        [f"{name}={call.environment[name]}" for name in STEERING if call.environment.get(name)]
    )


def files(call: Call, texts: Collection[str] = ()) -> bytes | None:
    """What lies in the files that the words name; None where that may be another by the time that it runs, or is too much.

    `texts` are words that are part of the content by themselves.
    """
    if call.moved or not call.cwd:
        return None
    found: list[str] = []
    for path in (each for each in _paths(call, call.cwd) if each not in texts):
        read = read_file(os.path.join(call.cwd, path))
        if read is None or len(found) >= FILES_MAX:
            return None
        found.append(content.digest(read))
    return content.packed(found)


def _paths(call: Call, folder: str) -> Iterator[str]:
    """What the words name that is there: `FILE`, `-fFILE`, `--file=FILE`, `name=@FILE`, `file://FILE`."""
    for word in call.words[1:]:
        given = [word, word.partition("=")[2]]
        given += [word[2:]] if word.startswith("-") and not word.startswith("--") else []
        for text in given:
            for scheme in ("fileb://", "file://", "@"):
                text = text.removeprefix(scheme)
            if text not in ("", "-") and os.path.lexists(os.path.join(folder, text)):
                yield text


def read_file(path: str) -> bytes | None:
    """What lies in a plain file now; None where it cannot be read, is something else, or too long."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            found = file.read(FILE_MAX + 1)
    except (OSError, ValueError):
        return None
    return found if len(found) <= FILE_MAX else None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
