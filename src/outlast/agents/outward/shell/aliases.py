"""The command that a program's first word really stands for: an alias of its configuration, or a beginning of a command's name.
Reads files, runs nothing. Aliases of npm are scripts, and stand in `tasks.py`.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence

from outlast.agents.outward.shell.parser import Word
from outlast.agents.outward.shell.tasks import quoted
from outlast.agents.outward.targets import git_config

FILE_MAX = 1 << 20
PARENTS_MAX = 64

# The commands of these programs. Any other first word may be an alias, or a beginning of one of these.
COMMANDS: Mapping[str, frozenset[str]] = {
    "git": frozenset(
        "add am apply archive bisect blame branch bundle cat-file check-attr check-ignore check-ref-format checkout "
        "checkout-index cherry cherry-pick clean clone commit commit-tree config count-objects describe diff diff-files "
        "diff-index diff-tree difftool fast-export fast-import fetch fetch-pack for-each-ref format-patch fsck gc grep "
        "hash-object help index-pack init log ls-files ls-remote ls-tree maintenance merge merge-base merge-file merge-tree "
        "mergetool mktag mktree mv name-rev notes pack-objects pack-refs prune pull push range-diff read-tree rebase reflog "
        "remote repack replace reset restore rev-list rev-parse revert rm send-pack shortlog show show-branch show-ref "
        "sparse-checkout stash status stripspace submodule switch symbolic-ref tag unpack-objects update-index update-ref "
        "var verify-commit verify-pack verify-tag version whatchanged worktree write-tree".split()
    ),
    "cargo": frozenset(
        "add bench build check clean clippy doc fetch fix fmt generate-lockfile help info init install locate-project login "
        "logout metadata miri new owner package pkgid publish read-manifest remove report run rustc rustdoc search test tree "
        "uninstall update vendor verify-project version yank b c d r rm t".split()
    ),
    "gh": frozenset(
        "alias api attestation auth browse cache codespace completion config extension gist gpg-key help issue label org pr "
        "preview project release repo ruleset run search secret ssh-key status variable workflow".split()
    ),
    "glab": frozenset(
        "alias api auth changelog check-update ci cluster completion config deploy-key duo help incident issue iteration job "
        "label mr release repo schedule securefile snippet ssh-key stack token user variable version pipeline".split()
    ),
    "hg": frozenset(
        "add addremove annotate archive backout bisect blame bookmarks branch branches bundle cat ci clone commit config "
        "copy cp diff export files forget graft grep heads help identify import incoming init log manifest merge mv outgoing "
        "parents paths phase phases pull push recover remove rename resolve revert rm rollback root serve showconfig st "
        "status summary tag tags tip unbundle up update verify version".split()
    ),
    "jj": frozenset(
        "abandon absorb backout bookmark commit config debug describe diff diffedit duplicate edit evolog file fix git help "
        "interdiff log new next operation parallelize prev rebase resolve restore root show sign simplify-parents sparse split "
        "squash status tag undo unsign util version workspace".split()
    ),
    "npm": frozenset(
        "access add adduser audit author bin bugs c cache ci cit clean-install clean-install-test completion config create "
        "ddp dedupe deprecate diff dist-tag dist-tags docs doctor edit exec explain explore find find-dupes fund get help "
        "help-search hlep home hook i ic in info init innit ins inst insta instal install install-ci-test install-clean "
        "install-test isnt isnta isntal isntall isntall-clean issues it la link list ll ln login logout ls ogr org "
        "outdated owner pack ping pkg prefix profile prune publish query r rb rebuild remove repo restart rm root rum run "
        "run-script s sbom se search set shrinkwrap show sit stage star stars start stop t team test token trust tst un "
        "undeprecate uninstall unlink unpublish unstar up update upgrade urn v version view why whoami x".split()
    ),
}  # fmt: skip
# Of these an alias may have the name all the same, and then goes before: what cargo starts or takes for short, what git calls
# deprecated (from 2.52 on), and every command of Mercurial.
_GIVEN_AWAY: Mapping[str, frozenset[str]] = {
    "git": frozenset(["whatchanged"]),
    "cargo": frozenset("b c d r rm t clippy fmt miri".split()),
    "hg": COMMANDS["hg"],
}
_ABBREVIATING = frozenset(["npm", "hg"])  # which take a beginning that only one command has
# Options that stand in front of the command and take a value.
VALUES: Mapping[str, frozenset[str]] = {
    "git": frozenset("-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source".split()),
    "cargo": frozenset("--color --config -Z -C --manifest-path --target-dir".split()),
    "gh": frozenset("-R --repo".split()),
    "glab": frozenset("-R --repo".split()),
    "hg": frozenset("-R --repository --cwd --config --encoding --color --pager".split()),
    "jj": frozenset("-R --repository --at-op --at-operation --config --config-file --config-toml --color".split()),
    "aws": frozenset(
        "--profile --region --endpoint-url --output --query --color --ca-bundle --cli-read-timeout --cli-connect-timeout "
        "--cli-binary-format".split()
    ),
    "npm": frozenset(
        "-C --prefix -w --workspace --registry --userconfig --globalconfig --loglevel --tag --access --otp --cache "
        "--script-shell --omit --include".split()
    ),
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z][\w-]*")


def own(name: str) -> frozenset[str]:
    """The commands of a program whose names no alias can have: a shim lets them through unless a trigger is among their words."""
    return COMMANDS.get(name, frozenset()) - _GIVEN_AWAY.get(name, frozenset())


def meant(words: Sequence[Word], name: str, cwd: str | None, variables: Mapping[str, str]) -> str:
    """The shell text that the call stands for; empty where its first word is a command, or nothing is known of it."""
    find = _ALIASES.get(name)
    at = _command(words, name)
    if find is None or at is None or words[at] in own(name):
        return ""
    try:
        alias = find(words[1:at], words[at], cwd or "", variables)
    except (ValueError, KeyError, TypeError, IndexError, OSError, RecursionError, AttributeError):
        return ""
    if not alias or alias.split()[0].lower() == words[at].lower():
        return ""
    rest = quoted(words[at + 1 :])
    return f"{alias[1:]}{rest}" if alias.startswith("!") else f"{name}{quoted(words[1:at])} {alias}{rest}"


def whole(words: Sequence[Word], name: str) -> list[Word]:
    """The call with the whole name of its command, where a beginning of it was given; else nothing."""
    at = _command(words, name) if name in _ABBREVIATING else None
    if at is None or words[at] in COMMANDS[name]:
        return []
    given = re.sub(r"(?<=[a-z])([A-Z])", r"-\1", words[at]).lower()  # npm: `distTag`
    longer = sorted(each for each in COMMANDS[name] if each.startswith(given))
    if (
        len(longer) > 1
    ):  # of several it is the one that reaches outside: the program would refuse, or know better
        longer = [each for each in longer if each in _OUTWARD][:1] or longer
    return [*words[:at], Word.of(longer[0], words[at].known), *words[at + 1 :]] if longer else []


_OUTWARD = frozenset(
    "publish unpublish deprecate undeprecate dist-tag owner access team hook org star unstar push".split()
)


def _command(words: Sequence[Word], name: str) -> int | None:
    """Where the command stands; None where there is no plain one."""
    at, values = 1, VALUES.get(name, frozenset())
    while at < len(words) and words[at].startswith(("-", "+")):
        at += 2 if words[at] in values else 1
    return at if at < len(words) and _NAME.fullmatch(words[at]) else None


# --- where aliases stand --------------------------------------------------------------------------------------------


def _git(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    """Aliases of any file or variable that git reads. One whose text we cannot see counts as a push."""
    key, folder, found = f"alias.{name.lower()}", cwd, ""
    for option, value in _given(before, VALUES["git"]):
        if option == "-C":
            folder = os.path.normpath(os.path.join(folder, value))
        elif option == "-c" and value.partition("=")[0].lower() == key:
            found = value.partition("=")[2]
        elif option == "--config-env" and value.partition("=")[0].lower() == key:
            found = variables.get(value.partition("=")[2], "push")
    if found:
        return found
    if given := git_config.from_environment(variables).get(("alias", "", name.lower())):
        return given
    repository = git_config.find(folder or None, variables)
    config = repository.config if repository else git_config.of_the_user(variables)
    return config.get(("alias", "", name.lower()), "")


def _cargo(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    if found := variables.get(f"CARGO_ALIAS_{name.upper().replace('-', '_')}"):
        return found
    texts = [value if "=" in value else _read(os.path.join(cwd, value)) for option, value in _given(before, VALUES["cargo"]) if option == "--config"]  # fmt: skip
    homes = [
        variables.get("CARGO_HOME", ""),
        *([f"{variables['HOME']}/.cargo"] if variables.get("HOME") else []),
    ]
    folders = [f"{folder}/.cargo" for folder in _upward(cwd)] + homes
    files = [os.path.join(folder, file) for folder in folders if folder for file in ("config.toml", "config")]
    for text in (*texts, *map(_read, files)):
        alias = _toml(text).get("alias")
        if isinstance(alias, dict) and (found := _joined(alias.get(name))):
            return found
    return ""


def _jj(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    home, given = variables.get("HOME", ""), variables.get("XDG_CONFIG_HOME", "")
    files = [f"{folder}/.jj/repo/config.toml" for folder in _upward(cwd)]
    files += [
        variables.get("JJ_CONFIG", ""),
        f"{given or home + '/.config'}/jj/config.toml",
        f"{home}/.jjconfig.toml",
    ]
    texts = [value for option, value in _given(before, VALUES["jj"]) if option.startswith("--config")]
    for text in (*texts, *map(_read, filter(None, files))):
        table = _toml(text).get("aliases")
        if isinstance(table, dict) and (found := _joined(table.get(name))):
            return found
    return ""


def _hg(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    for option, value in _given(before, VALUES["hg"]):
        if option == "--config" and value.partition("=")[0] == f"alias.{name}":
            return value.partition("=")[2]
    files = [f"{folder}/.hg/hgrc" for folder in _upward(cwd)] + [f"{variables.get('HOME', '')}/.hgrc"]
    return _of_section(files, "alias", name)


def _aws(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    del before, cwd
    return _of_section([f"{variables.get('HOME', '')}/.aws/cli/alias"], "toplevel", name)


def _gh(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    del before, cwd
    folder = variables.get("GH_CONFIG_DIR") or f"{_settings(variables)}/gh"
    head, _, rest = f"\n{_read(f'{folder}/config.yml')}".partition("\naliases:")
    return _of_yaml(re.split(r"\n(?=\S)", rest)[0], name) if head or rest else ""


def _glab(before: Sequence[Word], name: str, cwd: str, variables: Mapping[str, str]) -> str:
    del before, cwd
    folder = variables.get("GLAB_CONFIG_DIR") or f"{_settings(variables)}/glab-cli"
    return _of_yaml(_read(f"{folder}/aliases.yml"), name)


_ALIASES: Mapping[str, Callable[[Sequence[Word], str, str, Mapping[str, str]], str]] = {
    "git": _git, "cargo": _cargo, "jj": _jj, "hg": _hg, "aws": _aws, "gh": _gh, "glab": _glab,
}  # fmt: skip


# --- files ----------------------------------------------------------------------------------------------------------


def _given(words: Sequence[str], values: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The options among these words, each with its value."""
    at = 0
    while at < len(words):
        option, equals, value = words[at].partition("=")
        if not equals and words[at] in values and at + 1 < len(words):
            at += 1
            value = words[at]
        yield option, value
        at += 1


def _upward(cwd: str) -> list[str]:
    """A folder and those above it."""
    found: list[str] = []
    while os.path.isabs(cwd) and cwd not in found and len(found) < PARENTS_MAX:
        found.append(cwd)
        cwd = os.path.dirname(cwd)
    return found


def _settings(variables: Mapping[str, str]) -> str:
    return variables.get("XDG_CONFIG_HOME") or f"{variables.get('HOME', '')}/.config"


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _joined(alias: object) -> str:
    """An alias as it is written: a text, or a list of words."""
    if isinstance(alias, list):
        return quoted([str(word) for word in alias]).strip()
    return alias if isinstance(alias, str) else ""


def _of_section(files: Sequence[str], section: str, name: str) -> str:
    found = (git_config.config(path).get((section, "", name.lower()), "") for path in files)
    return next(filter(None, found), "")


def _of_yaml(text: str, name: str) -> str:
    """The value of a key in a flat table of YAML: on its line, quoted or not, or in an indented block below it."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        key, colon, value = line.strip().partition(":")
        if not colon or key.strip("\"'") != name:
            continue
        value, indent = value.strip(), len(line) - len(line.lstrip())
        for more in lines[at + 1 :]:
            if not more.strip() or len(more) - len(more.lstrip()) <= indent:
                break
            value += f"\n{more.strip()}"
        value = re.sub(r"\A[|>][-+]?\s*", "", value)
        return value[1:-1].replace('\\"', '"').replace("''", "'") if value[:1] in ('"', "'") else value
    return ""
