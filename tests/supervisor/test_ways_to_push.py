"""Ways to a `git push`: which outlast sees in the agent's own words, which by a shim below it, and which it does not see."""

import json
from pathlib import Path

import pytest

from outlast.agents.outward.classify import classify
from tests.supervisor.hook_driver import LOCAL, AttemptDies, before
from tests.supervisor.test_shims import Below, below

PUSH = "git push origin x"
SIGNATURE = "push origin refs/heads/"  # of which branch, is not always known before

# In the agent's own words: held before anything runs.
WORDS = [
    PUSH, "GIT_TRACE=0 git push origin x", "git -C . push origin x", "env git push origin x", "env -i /usr/bin/git push origin x",
    "command git push origin x", "exec git push origin x", "nohup git push origin x", "timeout 9 git push origin x",
    "nice -n 5 git push origin x", "setsid git push origin x", "stdbuf -o0 git push origin x", "time git push origin x",
    "sudo git push origin x", "sudo -E -u me git push origin x", "doas git push origin x", "echo x | xargs git push origin",
    "find . -maxdepth 0 -exec git push origin x ;", "find . -maxdepth 0 -execdir git push origin x +", "/usr/bin/git push origin x",
    "`which git` push origin x", "$(command -v git) push origin x", "sh -c 'git push origin x'", "bash -lc 'git push origin x'",
    "bash -c \"git push origin x\"", "eval 'git push origin x'", "echo 'git push origin x' | sh", "sh <<'E'\ngit push origin x\nE",
    "(git push origin x)", "{ git push origin x; }", "git push origin x &", "true && git push origin x", "false || git push origin x",
    "if true; then git push origin x; fi", "for r in x; do git push origin $r; done", "while git push origin x; do break; done",
    "f() { git push origin x; }; f", "G=git; $G push origin x", "g=push; git $g origin x", "echo $(git push origin x)",
    "cat <(git push origin x)", "trap 'git push origin x' EXIT", "watch git push origin x", "script -qc 'git push origin x' /dev/null",
    "flock l git push origin x", "su -c 'git push origin x'", "git -c alias.up=push up origin x", "git up x", "git send-pack origin x",
    "make push", "make -C . push", "npm run push", "pnpm push", "yarn push", "bun run push", "just push", "task push",
    "docker run -v .:/w alpine/git push origin x", "npx -c 'git push origin x'", "mise exec -- git push origin x",
    "direnv exec . git push origin x", "poetry run git push origin x", "nix-shell --run 'git push origin x'",
]  # fmt: skip

# Below the agent: a script does it, and a shim sees it.
BELOW = [
    PUSH, "sh -c 'git push origin x'", "bash -lc 'git push origin x'", "PATH=/usr/bin:/bin bash -c 'git push origin x'",
    "env -i PATH=\"$PATH\" git push origin x", "echo x | xargs git push origin", "python3 -c \"import os; os.system('git push origin x')\"",
    "python3 -c \"import subprocess; subprocess.run(['git', 'push', 'origin', 'x'])\"", "find . -maxdepth 0 -exec git push origin x ';'",
    "make -s push", "timeout 9 git push origin x", "nice git push origin x",
    "awk 'BEGIN { system(\"git push origin x\") }'", "perl -e 'exec qw(git push origin x)'",
]  # fmt: skip

# Nobody sees these before they run: docs/agents.md, "What is not guarded".
UNSEEN = {
    "python deploy.py": "a program's own words, in the agent's text; a shim sees what it calls by name",
    "./deploy.sh": "a script in a file of its own; a shim sees what it calls by name",
    "python -c \"import requests; requests.post('http://host.test')\"": "a program's own request",
    "alias p='git push'\np origin x": "an alias of the shell, which scripts do not expand",
    "git rebase -x 'git push origin x' main": "git calls itself",
    "$CMD origin x": "a word that only the shell knows",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files(tmp_path)
    git = tmp_path / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[alias]\n\tup = push origin\n")
    return tmp_path


def files(folder: Path) -> None:
    (folder / "Makefile").write_text(f"push:\n\t{PUSH}\n")
    (folder / "justfile").write_text(f"push:\n    {PUSH}\n")
    (folder / "Taskfile.yml").write_text(f"tasks:\n  push:\n    - {PUSH}\n")
    (folder / "package.json").write_text(json.dumps({"scripts": {"push": PUSH}}))


@pytest.mark.parametrize("text", WORDS)
def test_a_push_in_the_agents_own_words_is_seen_before_it_runs(text: str, project: Path) -> None:
    (found,) = classify("Bash", {"command": text}, str(project))
    assert found.signature.startswith(SIGNATURE)


@pytest.mark.parametrize("text", UNSEEN)
def test_what_the_docs_say_is_not_guarded_is_not_claimed_to_be(text: str, project: Path) -> None:
    assert classify("Bash", {"command": text}, str(project)) == []


def test_a_push_that_a_script_makes_is_seen_by_a_shim(tmp_path: Path) -> None:
    with below(tmp_path) as here:
        files(here.there.work)
        assert here.there.allows(before("claude", LOCAL))
        unseen = [text for text in BELOW if not _is_seen(here, text)]
        assert unseen == []
        raise AttemptDies


def _is_seen(here: Below, text: str) -> bool:
    """Whether a script with this text is asked about its push, once."""
    script = here.there.work / "deploy.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    seen = len(_pushes(here))
    here.run("./deploy.sh")
    return len(_pushes(here)) == seen + 1


def _pushes(here: Below) -> list[tuple[str, str]]:
    return [each for each in here.there.intended() if each[1] == "tell"]
