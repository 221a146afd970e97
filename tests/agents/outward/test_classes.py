"""Every class of outward calls: what counts, what does not, and what counts as the same."""

import json
from pathlib import Path

import pytest

from outlast.agents.outward import classify as classifier, rules
from outlast.agents.outward.classify import Outward, classify, classify_argv
from tests.agents.outward import repository
from tests.agents.outward.classes import TABLES


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository on branch main with the remotes of o/r, and a package of each kind."""
    repository.on_main(
        tmp_path,
        '[remote "origin"]\n\turl = git@github.com:o/r.git\n[remote "fork"]\n\turl = https://host/f/r\n'
        '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n',
    )
    (tmp_path / "package.json").write_text('{"name": "pkg", "version": "1.2.3"}')
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pkg_py"\nversion = "0.5"\n')
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "crate"\nversion = "0.1.0"\n')
    return tmp_path


TUNNELLED = rules.load([rules.LOOPBACK])  # as if this machine were another one


def shell(text: str, project: Path) -> list[Outward]:
    return classify("Bash", {"command": text}, str(project), known=TUNNELLED)


def signatures(text: str, project: Path) -> list[str]:
    return [one.signature.replace(str(project), "/PROJECT") for one in shell(text, project)]


CASES = [
    (name, which, row)
    for name, table in TABLES.items()
    for which in ("same", "local")
    for row in getattr(table, which)
]


@pytest.mark.parametrize(("name", "which", "text"), CASES)
def test_a_call_has_its_class_and_one_signature_whatever_its_flags_and_words(
    name: str, which: str, text: str, project: Path
) -> None:
    expected = [TABLES[name].signature] if which == "same" else []
    assert signatures(text, project) == expected
    assert all(one.parsed for one in shell(text, project))


@pytest.mark.parametrize("name", TABLES)
def test_another_target_is_another_signature(name: str, project: Path) -> None:
    seen = [TABLES[name].signature]
    for text in TABLES[name].other:
        found = signatures(text, project)
        assert len(found) == 1, text
        seen += found
    assert len(set(seen)) == len(seen), seen


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("git push &", True),
        ("( sleep 1; git push ) & date", True),
        ("{ sleep 1; git push; } & date", True),
        ("for i in 1 2; do git push; done &", True),
        ("nohup sh -c 'sleep 1; git push' >/dev/null 2>&1 &", True),
        ("sh -c 'git push &'", True),
        ("setsid -f git push", True),
        ("setsid --fork sh -c 'git push'", True),
        ("coproc git push", True),
        ("systemd-run --user git push", True),
        ("git push & git push ' unclosed", True),
        ("git push", False),
        ("git push && date", False),
        ("date & git push", False),
        ("git push &> log", False),
        ("git push > log 2>&1", False),
        ("git push |& tee log", False),
        ("setsid git push", False),
        ("nohup git push", False),
        ("git push 'x&y'", False),
    ],
)
def test_what_nobody_waits_for_is_known(text: str, apart: bool, project: Path) -> None:
    assert {one.apart for one in shell(text, project)} == {apart}


def test_defaults_of_a_push_are_read_from_the_repository(project: Path) -> None:
    assert signatures("git push", project) == ["push origin refs/heads/main"]
    assert signatures("git push https://host/f/r x", project) == ["push fork refs/heads/x"]
    assert signatures("git push https://me:secret@else/f/r x", project) == [
        "push https://else/f/r refs/heads/x"
    ]
    with open(project / ".git/config", "a") as config:
        config.write('[branch "main"]\n\tpushRemote = fork\n[push]\n\tdefault = upstream\n')
    assert signatures("git push", project) == ["push fork refs/heads/main"]
    assert signatures("cd / && git push", project) == ["push origin HEAD"]
    assert signatures('cd "$(mktemp -d)" && git push', project) == ["push origin HEAD"]
    (project / ".git/packed-refs").write_text(f"# pack\n{'0' * 40} refs/tags/v1\n")
    assert signatures("git push origin v1", project) == ["push origin refs/tags/v1"]


def test_a_remote_and_a_branch_are_the_same_however_they_are_written(project: Path) -> None:
    with open(project / ".git/config", "a") as config:
        config.write('[remote "here"]\n\turl = ../bare.git\n')
    bare = project.parent / "bare.git"
    for given in ("here", "../bare.git", f"file://{bare}", str(bare), f"{bare}/"):
        assert signatures(f"git push {given} x", project) == ["push here refs/heads/x"], given
    for branch in ("main", "$(git branch --show-current)", '"$(git rev-parse --abbrev-ref HEAD)"', "HEAD"):
        assert signatures(f"git push origin {branch}", project) == ["push origin refs/heads/main"], branch
    after = "git checkout -b y && git push origin $(git branch --show-current)"
    assert signatures(after, project) == ["push origin refs/heads/$(…)"], "it is another one by then"


def test_a_push_from_another_repository_is_looked_up_there(project: Path, tmp_path: Path) -> None:
    """Whether an option, a variable of the text or one of the environment leads there."""
    other = tmp_path / "other/.git"
    (other / "objects").mkdir(parents=True)
    (other / "HEAD").write_text("ref: refs/heads/main\n")
    (other / "config").write_text('[remote "origin"]\n\turl = /elsewhere\n')
    texts = (f"git --git-dir {other} push", f"export GIT_DIR={other}; git push", f"GIT_DIR={other} git push")
    found = [one for text in texts for one in shell(text, project)]
    found += classify_argv(["git", "push"], str(project), environment={"GIT_DIR": str(other)})
    assert [one.probe.params["git_dir"] for one in found if one.probe] == [str(other)] * 4


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("curl -d x http://h/p", False),
        ("curl -fd x http://h/p", True),
        ("curl -sSf -d x http://h/p", True),
        ("curl --fail-with-body -d x http://h/p", True),
        ("curl --fail -d x http://h/p http://h/q", False),
        ("curl -fK opts", False),
        ("curl -X POST https://api.github.com/repos/o/r/issues -d '{}'", False),
        ("wget --post-data x http://h/p", True),
        ("http POST http://h/p", False),
        ("http --check-status POST http://h/p", True),
        ("xh POST http://h/p", True),
        ("xh --no-check-status POST http://h/p", False),
        ("gh api repos/o/r/issues -f title=x", True),
        ("git push origin x", True),
        ("npm publish", True),
    ],
)
def test_exit_code_0_says_that_it_happened_only_where_a_refusal_has_another_one(
    text: str, sure: bool, project: Path
) -> None:
    assert [one.sure for one in shell(text, project)] == [sure]


def test_every_way_of_naming_a_target_is_known_to_the_rules() -> None:
    assert set(classifier._RESOLVERS) == rules.RESOLVES


def test_a_worktree_has_a_branch_of_its_own(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    tree, own = tmp_path_factory.mktemp("tree"), project / ".git/worktrees/t"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/topic\n")
    (own / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert signatures(f"git -C {tree} push", project) == ["push origin refs/heads/topic"]


def test_several_outward_commands_in_one_call_are_a_list_in_order(project: Path) -> None:
    text = "git push && gh pr create --fill; curl -s http://x | grep y\nnpm publish"
    assert signatures(text, project) == [
        "push origin refs/heads/main",
        "pr-create o/r main",
        "publish npm pkg@1.2.3",
    ]


def test_a_body_in_an_unquoted_here_document_runs_its_substitutions(project: Path) -> None:
    assert signatures("cat <<EOF\n$(git push origin x) and `git push origin y`\nEOF", project) == [
        "push origin refs/heads/x",
        "push origin refs/heads/y",
    ]


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Bash", {"command": "git push origin x"}),
        ("shell", {"command": ["bash", "-lc", "git push origin x"]}),
        ("local_shell", {"action": {"type": "exec", "command": ["git", "push", "origin", "x"]}}),
        ("exec_command", {"cmd": "git push origin x"}),
        ("exec_command", '{"cmd": "git push origin x"}'),
        ("write_stdin", {"session_id": 1, "chars": "git push origin x\n"}),
        ("run_shell_command", {"command": "git push origin x", "directory": "sub"}),
        ("Shell", {"command": "git push origin x", "timeout": 5}),
        ("bash", "git push origin x"),
        ("unheard_of", {"command": "git push origin x"}),
    ],
)
def test_every_agent_s_shell_tool_is_understood(tool: str, given: object, project: Path) -> None:
    assert [one.signature for one in classify(tool, given, str(project))] == ["push origin refs/heads/x"]


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("mcp__github__add_issue_comment", {"owner": "o", "repo": "r", "issue_number": 7, "body": "x"}, ["comment o/r#7"]),
        ("mcp__github__create_issue", {"owner": "o", "repo": "r", "title": "x"}, ["issue-create o/r"]),
        ("mcp__github__create_pull_request", {"owner": "o", "repo": "r", "head": "t"}, ["pr-create o/r t"]),
        ("mcp__slack__post_message", {"channel": "c", "text": "a"}, ["mcp slack post_message channel=c"]),
        ("mcp__slack__post_message", {"text": "other", "channel": "c"}, ["mcp slack post_message channel=c"]),
        ("mcp__slack__post_message", {"channel": "d", "text": "a"}, ["mcp slack post_message channel=d"]),
        ("mcp__db__execute", {}, ["mcp db execute"]),
        ("mcp_linear_createIssue", {"team": "t"}, ["mcp linear createIssue team=t"]),
        ("mcp__github__get_issue", {"owner": "o"}, []),
        ("mcp__github__list_commits", {}, []),
        ("mcp__slack__slack_list_channels", {}, []),
        ("mcp__wiki__get_or_create_page", {"name": "p"}, ["mcp wiki get_or_create_page name=p"]),
        ("mcp__docs__search_and_replace", {}, ["mcp docs search_and_replace"]),
        ("mcp__db__findAndModify", {}, ["mcp db findAndModify"]),
        ("mcp__box__list_and_delete", {}, ["mcp box list_and_delete"]),
        ("mcp__web__fetch", {"url": "http://x/", "method": "post"}, ["mcp web fetch url=http://x/"]),
        ("mcp__web__fetch", {"url": "http://x/", "method": "GET"}, []),
        ("mcp__forge__get_comment", {}, []),
        ("mcp__forge__list_issues_and_comments", {}, []),
        ("mcp__docs__search", {}, []),
        ("WebFetch", {"url": "http://x"}, []),
        ("WebSearch", {"query": "git push"}, []),
        ("Write", {"file_path": "a", "content": "git push"}, []),
        ("Edit", {"old_string": "a", "new_string": "curl -X POST http://x"}, []),
        ("Task", {"prompt": "git push origin x"}, []),
    ],
)  # fmt: skip
def test_an_agent_s_own_tools_are_outward_unless_they_read(
    tool: str, given: object, expected: list[str]
) -> None:
    assert [one.signature for one in classify(tool, given, "/")] == expected


def test_a_user_s_tables_are_appended_and_the_last_word_counts(project: Path) -> None:
    known = rules.load(
        [
            {
                "kind": "fax",
                "programs": ["fax"],
                "commands": ["send"],
                "values": ["-q"],
                "targets": ["-t/--to"],
            },
            {"kind": "push", "programs": ["git"], "commands": ["push scratch"], "local": True},
            {"kind": "mcp", "tools": ["mcp__browser__*"], "local": True},
            {"kind": "own", "tools": ["mcp__x__get_*"]},
        ]
    )

    def found(tool: str, given: object) -> list[str]:
        return [one.signature for one in classify(tool, given, str(project), known=known)]

    assert found("Bash", "fax -q 9 send page --to me") == ["fax send page to=me"]
    assert found("Bash", "git push scratch x") == []
    assert found("Bash", "git push origin x") == ["push origin refs/heads/x"]
    assert found("mcp__browser__click", {}) == []
    assert found("mcp__x__get_y", {}) == ["mcp x get_y"]


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"kind": "x"},
        {"kind": "x", "programs": "git"},
        {"kind": 3, "programs": ["a"]},
        {"kind": "x", "programs": ["a"], "wrong": 1},
        {"kind": "x", "programs": ["a"], "local": "yes"},
        {"kind": "x", "programs": ["a\nb"]},
        {"kind": "x", "programs": [""]},
        {"kind": "x", "programs": ["sh ip/../x"]},
        {"kind": "x", "programs": ["bin/ship"]},
        {"kind": "x", "programs": ["a"], "resolve": "nonsense"},
        {"kind": "x", "programs": ["a"], "words": -5},
        {"kind": "x", "programs": ["a"], "commands": [""]},
    ],
)
def test_a_table_that_is_not_understood_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="outward"):
        rules.load([table])


@pytest.mark.parametrize(
    "text",
    ["git push origin 'x", 'git push origin x "', "git push origin x; $(", "cat <<E\ngit push origin x\n"],
)
def test_what_is_no_shell_is_searched_and_said_to_be(text: str, project: Path) -> None:
    found = shell(text, project)
    assert [one.signature for one in found] == ["push origin refs/heads/x"]
    assert not found[0].parsed
    assert shell("it's git status", project) == []


def test_words_of_a_shim_are_classified_as_they_are(project: Path) -> None:
    assert [one.signature for one in classify_argv(["git", "push", "origin", "a;b $(c)"], str(project))] == [
        "push origin refs/heads/a;b $(c)"
    ]
    assert classify_argv(["git", "status"], str(project)) == []
    assert classify_argv([], None) == []


def test_no_credential_is_in_a_signature_or_a_probe(project: Path) -> None:
    for text in (
        "curl -X PUT -H 'Authorization: Bearer s3cret' -d x http://me:s3cret@host/p",
        "curl -X PUT -d x 'http://host/p?sig=s3cret'",
        "git push https://me:s3cret@host/o/r x",
        "npm publish --otp s3cret --registry http://u:s3cret@host/",
        "GH_TOKEN=s3cret gh pr comment 7 -R o/r -b x",
        "twine upload --repository-url http://u:s3cret@host/legacy/ -p s3cret dist/*",
    ):
        (one,) = shell(text, project)
        assert "s3cret" not in one.signature + json.dumps(dict(one.probe.params) if one.probe else {}), text
