"""A real agent whose model fails it: whatever the cause, its work is saved, the cause is named, and the next start goes on."""

import subprocess

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Fault, Script, Step, bash
from tests.support.vaults import vault_of

# What the model's API answers from its second response on, the cause that is named, and what `outlast run` ends with.
CASES = {
    "service error": (Fault(error="server", times=None), ("network",), (1, 3)),
    "auth": (Fault(error="auth", times=None), ("auth",), (5,)),
    "context": (Fault(error="overflow", times=None), ("context",), (1, 3)),
}
CLAUDE, CODEX, GEMINI, OPENCODE = ("claude", "2.1.325"), ("codex", None), ("gemini", None), ("opencode", None)


# Of the others some try a server error again for minutes, and some name no full context.
@pytest.mark.parametrize(
    ("under", "case"),
    [
        (CLAUDE, "service error"), (CLAUDE, "auth"), (CLAUDE, "context"), (CODEX, "service error"), (GEMINI, "auth"),
        (("kimi-code", None), "auth"), (OPENCODE, "auth"),
    ],
    indirect=["under"],
    ids=lambda given: given if isinstance(given, str) else given[0],
)  # fmt: skip
def test_its_work_is_saved_and_the_cause_is_named(under: Under, case: str) -> None:
    fault, causes, codes = CASES[case]
    world = under.world
    world.model.script = Script(
        [Step("I work.", (bash("echo half > half.txt"),)), Step("More.", (), fault=fault), Step("Done.")]
    )
    done = under.run("--restarts", "1")
    shown = under.shown()
    assert shown["cause"] in (*causes, "quarantine"), (shown["cause"], shown["evidence"], done.stderr)
    assert done.returncode in codes, done.stderr
    vault = f"--git-dir={vault_of(world.work)}"
    saved = subprocess.run(
        ["git", vault, "for-each-ref", "--format=%(objectname)", "refs/outlast/"], capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert any(
        subprocess.run(["git", vault, "cat-file", "-e", f"{commit}:half.txt"], capture_output=True).returncode == 0
        for commit in saved
    )  # fmt: skip
    world.model.script = Script([Step("I work."), Step("Done."), Step("Done.")])
    again = under.call("resume", "t")
    assert (again.returncode, under.shown()["status"]) == (0, "done"), again.stderr
