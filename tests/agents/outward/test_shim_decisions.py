"""What a shim's shell lets pass is never what the classifier calls outward: random command lines, decided by both."""

import random
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlast.agents.outward import inside, rules, shims
from outlast.agents.outward.classify import VARIABLES, Outward, classify_argv
from outlast.agents.outward.rules import Rules
from outlast.agents.outward.shell import aliases, runners, tasks
from outlast.agents.outward.shell.parser import Unparsable
from outlast.agents.outward.shell.programs import from_text
from tests.agents.outward import repository, test_corpus, test_forms
from tests.agents.outward.classes import TABLES

TUNNELLED = rules.load([rules.LOOPBACK])
LINES = 12_000
PASSED, ASKED = 0, 1  # how `true` and `false` end, in place of the real program and the client

USUAL = "git npm curl gh docker kubectl yarn pnpm bun cargo wget uv hg aws glab jj".split()
# What makes a command line strange, whatever its program.
STRANGE = (
    "", "-", "--", "---", "-x", "-X", "-XPOST", "-XGET", "GET", "HEAD", "POST", "--request", "--request=POST", "-sX", "-fsSX", "-C", ".", "-c",
    "alias.x=!curl -X POST h.example", "alias.status=push", "x", "zz", "up", "ship", "say", "out", "push", "a b", "a\nb", "*", "?", "[a]", "$HOME", "`id`", "'", '"', "\\",
    "x:y", ":", "a=b", "--a=b", "--a", "+nightly", "exec", "run", "publish", "http://h.example/x", "@f", "--dry-run", "--help", "-n", "--no-dry-run",
    "-d", "-dx", "--da", "--re", "-K", "-T", "-o", "-u", "-e", "--exec", "git push origin x", "develop", "shell", "--command", "é", "p" * 300,
)  # fmt: skip
VARIED = (
    "GIT_DIR", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "RAILS_ENV", "http_proxy", "AWS_PROFILE", "PGHOST", "GH_REPO", "npm_config_registry",
    "DOCKER_HOST", "KUBECONFIG",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with aliases and scripts in all files that may hold some."""
    repository.on_main(tmp_path, "")
    for name, text in test_forms.FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    scripts = '{"scripts": {"list": "git push", "build": "npm publish", "ls": "curl -X POST h.example", "x": "npm publish"}}'
    (tmp_path / "package.json").write_text(scripts)
    (tmp_path / "sends").mkdir()
    (tmp_path / "sends/.curlrc").write_text("data = x\n")
    (tmp_path / "sends/.wgetrc").write_text("post_data = x\n")
    (tmp_path / "apart/.config").mkdir(parents=True)
    (tmp_path / "apart/.config/curlrc").write_text("data = x\n")
    return tmp_path


class Decisions:
    """The decisions of many shims in one shell, each for one command line."""

    def __init__(self, folder: Path, project: Path, known: Rules) -> None:
        self._folder, self._project, self._known = folder, project, known
        folder.mkdir()

    def of(self, lines: Sequence[tuple[dict[str, str], list[str]]], home: str | None = None) -> list[bool]:
        """Whether each passes without being asked about. `home`: that of this user, where no variable names one."""
        for program in {words[0] for _, words in lines}:
            (self._folder / program).write_text(
                "outlast_real=/bin/true\n" + shims.decision(program, "exec /bin/false", self._known, home)
            )
        texts = []
        for variables, words in lines:
            given = "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())
            texts.append(
                f"({given}set -- {shlex.join(words[1:])}; . {self._folder}/{words[0]}) > /dev/null 2>&1; echo $?\n"
            )
        done = subprocess.run(
            ["/bin/sh", "-s"], input="".join(texts), cwd=self._project, env={}, capture_output=True, text=True,
            timeout=600, check=True,
        )  # fmt: skip
        found = [int(line) for line in done.stdout.split()]
        assert len(found) == len(lines), done.stderr
        odd = [line for code, line in zip(found, lines, strict=True) if code not in (PASSED, ASKED)]
        assert not odd, odd[:5]
        return [code == PASSED for code in found]


def vocabulary(program: str, known: Rules) -> list[str]:
    """Words that mean something to a program, and some of another."""
    words: set[str] = set(aliases.COMMANDS.get(program, ())) | set(aliases.VALUES.get(program, ()))
    for rule in known.of_program(program):
        words |= {word for command in rule.commands for each in command for word in each}
        words |= {*rule.values, *rule.only, *rule.unless, *rule.triggers}
    words |= {
        part for name in runners.WRAPPERS if name.startswith(f"{program} ") for part in name.split()[1:]
    }
    words |= {*tasks.STARTING, *tasks.COMMANDS} if program in tasks.VALUES else set()
    if program in runners.CONTAINERS:
        words |= {"run", "exec", "compose", "container"}
    return sorted(word.replace("**", "x").replace("*", "x").replace("?", "x") for word in words if word)


def corpus() -> list[list[str]]:
    """The calls in all the forms that the tests have, each as the words that a shim would see."""
    texts = [line for _, line in test_corpus.rows()]
    texts += [row for table in TABLES.values() for row in (*table.same, *table.other, *table.local)]
    found = []
    for text in texts:
        try:
            found += [[str(word) for word in call.words] for call in from_text(text, "/nowhere", {})]
        except Unparsable:
            continue
    return found


def a_line(rng: random.Random, rows: Sequence[list[str]], known: Rules, programs: Sequence[str]) -> list[str]:
    """A row of the corpus with some words changed, or words of one program's, or of nobody's."""
    if rng.random() < 0.4:
        words = list(rng.choice(rows))
        for _ in range(rng.randrange(3)):
            at = rng.randint(1, len(words))
            words[at : at + rng.randrange(2)] = [rng.choice((*STRANGE, *vocabulary(words[0], known)))]
        return words
    program = rng.choice(programs)
    own = vocabulary(program, known) or ["x"]
    return [program, *(rng.choice(own if rng.random() < 0.7 else STRANGE) for _ in range(rng.randrange(7)))]


def reaches(found: Sequence[Outward], program: str) -> bool:
    """Whether something of this is the program's own doing, or that of one that it would find without a shim: what it starts by
    way of the PATH has a shim of its own."""
    by_name = tasks.PROGRAMS - frozenset(tasks.VALUES)  # `sh` puts the shims in front again below these
    elsewhere = program in runners.SHIMMED - {"env"} - by_name or inside.files(program, "")
    return any(each.words[:1] == (program,) or elsewhere for each in found)


def test_what_a_shim_lets_pass_is_not_outward(project: Path, rng: random.Random, whole: bool) -> None:
    programs = shims.shimmed_programs(TUNNELLED)
    rows = [row for row in corpus() if row[0] in programs]
    lines: list[tuple[dict[str, str], list[str]]] = [({}, row) for row in rows]
    for _ in range(LINES if whole else LINES // 6):
        variables = {
            name: rng.choice(("x", "production", "'alias.zz=push'", "1"))
            for name in VARIED
            if rng.random() < 0.05
        }
        home = rng.choice([project, *(project / name for name in ("home", "sends", "apart"))])
        lines.append(
            (
                variables | {"HOME": str(home)},
                a_line(rng, rows, TUNNELLED, USUAL if rng.random() < 0.6 else programs),
            )
        )
    passed = Decisions(project / "shims", project, TUNNELLED).of(lines)
    wrong = []
    for is_passed, (variables, words) in zip(passed, lines, strict=True):
        named = {name: value for name, value in variables.items() if name in VARIABLES}
        if not is_passed:
            continue
        found = classify_argv(words, str(project), environment=named, known=TUNNELLED)
        if reaches(found, words[0]):
            wrong.append(f"{variables} {shlex.join(words)}: {[each.signature for each in found]}")
    assert not wrong, f"{len(wrong)} of {len(lines)}\n" + "\n".join(wrong[:40])
    assert sum(passed) > len(lines) // 10


@pytest.mark.parametrize(
    "line",
    ["git status", "git stash push -m push", "git -C . log push", "git --git-dir=x branch -m move", "npm ls", "npm ls publish",
     "pnpm install", "yarn add run", "curl -X GET http://h", "curl -sSX HEAD http://h", "curl --request OPTIONS -s http://h", "gh run view 7",
     "gh pr list --search run", "docker ps --filter name=push", "kubectl get pods run"],
)  # fmt: skip
def test_what_surely_stays_inside_starts_no_python(project: Path, line: str) -> None:
    variables = {"HOME": str(project)}
    assert Decisions(project / "shims", project, rules.load()).of([(variables, line.split())]) == [True]


@pytest.mark.parametrize(
    "line",
    ["git -c alias.x=push x", "git -c alias.x=!true x", "git --config-env=alias.x=X x", "git up", "git -- push", "git submodule foreach push",
     "npm run build", "npm x", "pnpm build", "yarn workspace a build", "curl -X", "curl -X POST h", "curl -X GET -d x h", "curl -X GET -XPOST h",
     "curl -X -d h", "curl -sXPOST h", "gh run rerun 7", "gh run -R o/r rerun", "docker run x", "docker -z push x", "kubectl apply -f x", "aws out",
     "git whatchanged", "cargo b", "cargo clippy", "hg status"],
)  # fmt: skip
def test_what_may_reach_outside_is_asked_about(project: Path, line: str) -> None:
    variables = {"HOME": f"{project}/home"}
    assert Decisions(project / "shims", project, rules.load()).of([(variables, line.split())]) == [False]


@pytest.mark.parametrize("words", ["curl http://h", "curl -X GET http://h", "wget http://h"])
def test_a_file_of_options_makes_every_call_one_to_ask_about(project: Path, words: str) -> None:
    lines = [({"HOME": f"{project}/{home}"}, words.split()) for home in ("home", "sends")]
    if not words.startswith("wget"):
        lines.append(({"HOME": f"{project}/apart"}, words.split()))
    assert Decisions(project / "shims", project, rules.load()).of(lines) == [True, False, False][: len(lines)]


@pytest.mark.parametrize("words", ["curl http://h", "curl -X GET http://h", "wget http://h"])
@pytest.mark.parametrize(("home", "passes"), [("home", True), ("sends", False)])
def test_where_no_variable_names_a_home_the_users_own_one_counts(
    project: Path, words: str, home: str, passes: bool
) -> None:
    (project / "$a } \\ `b").symlink_to(project / home)
    found = Decisions(project / "shims", project, rules.load())
    assert found.of([({}, words.split())], str(project / "$a } \\ `b")) == [passes]
