"""Other forms of the same call: aliases from every file that a program reads, beginnings of names, texts in files."""

import subprocess
from pathlib import Path

import pytest

from outlast.agents.outward import shims
from outlast.agents.outward.classify import classify, classify_argv
from outlast.agents.outward.shell import aliases
from outlast.agents.outward.targets import remote_words
from tests.agents.outward import repository
from tests.support.environment import need_tool

FILES = {
    ".git/config": '[remote "origin"]\n\turl = ../o.git\n[include]\n\tpath = ../included\n[includeIf "onbranch:x"]\n\tpath = ../sometimes\n',
    "included": "[alias]\n\tup = push\n\tdeep = !git push origin main\n",
    "sometimes": '[alias]\n\tship = push\n[remote "origin"]\n\turl = elsewhere\n',
    "global": "[alias]\n\tfar = push\n",
    ".cargo/config.toml": '[alias]\nship = ["publish", "--locked"]\nout = "publish"\nb2 = "build --release"\n',
    "home/.cargo/config": '[alias]\nhomely = "publish"\n',
    "home/.config/gh/config.yml": 'git_protocol: https\naliases:\n    say: issue comment\n    new: "!gh pr create"\nhttp_unix_socket:\n',
    "home/.config/glab-cli/aliases.yml": "ship: mr merge\n",
    "home/.aws/cli/alias": "[toplevel]\nout = s3 rm\n",
    "home/.config/jj/config.toml": '[aliases]\nup = ["git", "push"]\n',
    "home/.hgrc": "[alias]\nout2 = push\n",
    "mutation.graphql": "mutation { addStar(input: {}) { id } }",
    "query.graphql": "query { viewer { login } }",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    repository.on_main(tmp_path, "")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "outward"),
    [
        ("git up", True),
        ("git deep", True),
        ("git ship", True),
        ("GIT_CONFIG_GLOBAL=PROJECT/global git far", True),
        ("git far", False),
        ("GIT_CONFIG_PARAMETERS=\"'alias.p=push'\" git p", True),
        ("cargo ship", True),
        ("cargo +nightly ship", True),
        ("cargo out", True),
        ("cargo homely", True),
        ("cargo b2", False),
        ("CARGO_ALIAS_B=publish cargo b", True),
        ("CARGO_ALIAS_CLIPPY=publish cargo clippy", True),
        ("CARGO_ALIAS_BUILD=publish cargo build", False),
        ("cargo b", False),
        ("git -c alias.whatchanged=push whatchanged", True),
        ("git -c alias.status=push status", False),
        ("hg --config alias.status=push status", True),
        ("hg status", False),
        ("CARGO_ALIAS_Q=publish cargo q", True),
        ("cargo --config 'alias.z=\"publish\"' z", True),
        ("gh say 7 -b x", True),
        ("gh new", True),
        ("glab ship 4", True),
        ("aws out s3://b/x", True),
        ("jj up", True),
        ("hg out2", True),
        ("gh api graphql -F query=@mutation.graphql", True),
        ("gh api graphql -F query=@-", True),
        ("gh api graphql -F query=@missing.graphql", True),
        ("gh api graphql -f query='query{a}' -F query=@mutation.graphql", True),
        ("gh api graphql -F query=@query.graphql", False),
    ],
)
def test_another_form_of_an_outward_call_is_outward(project: Path, text: str, outward: bool) -> None:
    text = text.replace("PROJECT", str(project))
    found = classify("Bash", {"command": text}, str(project), environment={"HOME": f"{project}/home"})
    assert bool(found) == outward, text


def test_an_include_with_a_condition_moves_no_remote(project: Path) -> None:
    found = classify("Bash", {"command": "git push"}, str(project))
    assert [each.signature for each in found] == ["push origin refs/heads/main"]


@pytest.mark.parametrize("name", [".wgetrc", ".curlrc", ".config/curlrc"])
def test_a_file_of_options_that_sends_makes_every_call_outward(tmp_path: Path, name: str) -> None:
    words, home = ["wget" if name == ".wgetrc" else "curl", "http://h/x"], {"HOME": str(tmp_path)}
    assert classify_argv(words, str(tmp_path), environment=home) == []
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("# mine\npost_data = x\n" if name == ".wgetrc" else "data = x\n")
    assert len(classify_argv(words, str(tmp_path), environment=home)) == 1


@pytest.mark.parametrize("program", sorted(aliases.COMMANDS))
def test_a_first_word_that_is_no_command_goes_to_the_client(tmp_path: Path, program: str) -> None:
    """Below an agent an alias is not spelled out: only the client can tell what it stands for."""
    script = tmp_path / program
    client = tmp_path / "client.py"
    client.write_text("ENTRY = lambda words: print('client')\n")
    script.write_text(shims.shim_script(program, "/bin/echo", "/usr/bin/python3", str(client)))

    def says(*words: str) -> str:
        done = subprocess.run(
            ["/bin/sh", str(script), *words], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    option = min(aliases.VALUES[program])
    for words in (["zz"], [option, "config", "zz"], ["--flag", "zz"], ["+nightly", "zz"]):
        assert says(*words) == "client\n", words
    for words in (["help", "zz"], [option, "zz", "help"]):
        if "help" in aliases.own(program):
            assert says(*words) == f"{' '.join(words)}\n", words


def test_the_commands_of_git_are_gits_own() -> None:
    """What is no command of git's may be an alias; what is one cannot be."""
    need_tool("git")
    listed = subprocess.run(
        ["git", "--list-cmds=builtins,main"], capture_output=True, text=True, timeout=60, check=True
    )
    assert aliases.COMMANDS["git"] <= set(listed.stdout.split()) | {"archive", "version"}
    assert not aliases.COMMANDS["git"] & {"push"} - set(listed.stdout.split())


@pytest.mark.parametrize(
    "command",
    ["cat x | tee y", "ls && rm x", "ls\nrm x", "! ls", "if ls; then rm x; fi", "find . -exec rm {} +", "ls;(rm x)",
     "e\\cho x; r\\m y", "find $X", "awk 1 x", "sort -o x y", "sudo ls", "./ls", "ls " + "x" * 20_000, "", "date -us x"],
)  # fmt: skip
def test_what_is_not_on_the_list_of_reading_commands_does_not_read(command: str) -> None:
    assert not remote_words.only_read(command)
