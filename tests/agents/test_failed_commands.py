"""A real agent whose commands fail: what is recorded of them says so, by the CLI's own telling or by a shim."""

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Script, Step, bash


def test_a_command_that_failed_is_on_record_as_failed(under: Under) -> None:
    world = under.world
    push = "git push /nowhere/at/all HEAD:refs/heads/x"
    world.model.script = Script(
        [Step("Fail.", (bash("echo bad; exit 7"),)), Step("Push.", (bash(push),)), Step("Done.")]
    )
    done = under.run()
    assert done.returncode == 0, done.stderr
    local, pushed = [each["result"] for each in under.effects()]
    # Codex's hooks say that a call has ended, and not how; of what reaches outside its transcript is waited for.
    assert (local["ok"], local.get("exit_code")) == ((None, None) if under.name == "codex" else (False, 7))
    assert (pushed["ok"], pushed["exit_code"]) == (False, 128)
    done_outside = under.call("context", "t").stdout.partition("# Effects done")[2].partition("\n#")[0]
    assert "push" not in done_outside
