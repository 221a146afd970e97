"""What a script below an agent's call did to the world is not done again when the call is cut off after it."""

import pytest

from tests.agents.agent_under_outlast import Under
from tests.agents.script import Script, bash, repeating
from tests.support.processes import wait_for

# One whose hooks see each call, one that runs login shells, and one that only shims see.
AGENTS = [("claude", "2.1.325"), ("codex", None), ("mini-swe-agent", None)]
pytestmark = pytest.mark.parametrize("under", AGENTS, indirect=True, ids=lambda agent: agent[0])


def test_killed_after_what_a_script_did_outside_it_does_not_do_it_again(under: Under) -> None:
    world = under.world
    posting = world.posting("comment", body="hello", flags="-f" if under.name != "codex" else "").input[
        "command"
    ]
    script = world.work / "post.sh"
    script.write_text(
        f"#!/bin/bash\n{posting} || exit\nif [ ! -e posted ]; then touch posted; sleep 300; fi\n"
    )
    script.chmod(0o755)
    world.model.script = Script(repeating(bash("./post.sh"), bash("./post.sh; true")))
    process = under.start()
    wait_for((world.work / "posted").exists, what="the script", limit_s=60)
    under.kill_all(process)
    done = under.run()
    assert [act.name for act in world.performed()] == ["comment"], done.stderr
    # Without -f nobody can know whether the server accepted: that is for somebody to find out.
    assert done.returncode == (3 if under.name == "codex" else 0), done.stderr
