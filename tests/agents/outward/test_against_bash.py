"""What a hook reads from a text is what a shim sees when bash runs it: the same commands, with the same signatures."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from outlast.agents.outward import shims
from outlast.agents.outward.classify import classify, classify_argv
from tests.agents.outward.classes import TABLES
from tests.agents.outward.test_classes import TUNNELLED, project
from tests.support.environment import need_tool

__all__ = ["project"]  # the fixture

# Every program that could act is a stand-in, and PATH leads to nothing else that could.
TOOLS = "sh bash cat tee true grep find timeout nohup xargs env mktemp printf echo sleep cp touch which flock".split()
STAND_IN = """#!/bin/sh
fed=
[ /dev/stdin -ef /dev/null ] || fed=yes
printf '%s\\0' {name} "$PWD" "$GH_REPO" "$GH_HOST" "$fed" $# "$@" >> '{log}'
"""
# Programs that are not there, a state that a stand-in does not change, or a path past the stand-ins.
NOT_HERE = (
    "sudo",
    "-lc",
    "/usr/bin/",
    "./gradlew",
    "python",
    "checkout",
    "switch",
    "npx",
    "uvx",
    "time ",
    "ssh-keygen",
    "man ",
    "notmuch",
    "mailq",
    "gem build",
    "pip ",
    "watch ",
    "script ",
    "systemd-run",
)

MORE = [
    "git push 'a b' \"$(echo \"x y\")\" || true",
    "x=origin; y=$x; git push \"$y\" z; git push ${y} z",
    "git \\\n push \\\n origin x",
    "echo \"it's $(git push origin 'q\"r') done\"",
    "cat <<-E | git push origin x\n\tgit push no\n\tE\ngit push origin y",
    "(cd / && git push origin x); git push origin y",
    "{ git push origin a; } 2>/dev/null >&2",
    "while false; do :; done; until true; do :; done; git push origin b",
    "git push origin c >out 2>&1 </dev/null && git push origin d &>>out",
    "a=(push origin 'e f'); git \"${a[@]}\"; echo \"${#a[@]}\"",
    "echo $((1 << 2)); ((3 > 2)) && git push origin g",
    "[[ a == a && -n x ]] && git push origin h",
    "f() { git push origin i; }\nf",
    "case z in z) git push origin j;; esac",
    "echo `git push origin k`; echo \\`git push no\\`",
    "git push origin $'l\\tm'",
    "echo '#' # git push no\ngit push origin n",
    "echo a#b; git push origin o#p",
    "printf 'git push origin %s\\n' q > f; cat f",
    "bash -c \"git push origin 'r s'\"; sh -ec 'git push origin t'",
    "git push origin u;git push origin v&&git push origin w|cat;",
    "for n in 1; do git push origin const; done",
    "if ! false; then git push origin x1; else :; fi",
    "cat <(git push origin x2) > /dev/null",
]  # fmt: skip


def ran(text: str, folder: Path, project: Path) -> list[str]:
    """The signatures of the calls that bash really made."""
    log, fakes = folder / "log", folder / "bin"
    fakes.mkdir(exist_ok=True)
    log.write_text("")
    for tool in TOOLS:
        if not (fakes / tool).exists():
            (fakes / tool).symlink_to(need_tool(tool))
    for name in {*shims.shimmed_programs(), "poetry"} - set(TOOLS):
        if name in text and not (fakes / name).exists():
            (fakes / name).write_text(STAND_IN.format(log=log, name=name))
            (fakes / name).chmod((fakes / name).stat().st_mode | stat.S_IXUSR)
    subprocess.run(
        [need_tool("bash"), "-c", text], cwd=project, env={"PATH": str(fakes), "HOME": str(folder)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    found, parts = [], iter(log.read_text().split("\0")[:-1])
    for name in parts:
        cwd, repo, host, fed, count = (next(parts) for _ in range(5))
        words = [next(parts) for _ in range(int(count))]
        known = {key: value for key, value in (("GH_REPO", repo), ("GH_HOST", host)) if value}
        found += [
            one.signature
            for one in classify_argv([name, *words], cwd, environment=known, known=TUNNELLED, fed=bool(fed))
        ]
    return found


def is_run_here(row: str) -> bool:
    return not (row.endswith("&") or row.startswith("case") or any(word in row for word in NOT_HERE))


ROWS = [row for table in TABLES.values() for row in (*table.same, *table.local) if is_run_here(row)]


@pytest.mark.parametrize("text", [*ROWS, *MORE])
def test_hook_and_shim_agree(text: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("f", "x", "opts", "refs", "m"):
        (project / name).write_text("")
    if "xargs" in text:
        (project / "refs").write_text("y\n")
    expected = [one.signature for one in classify("Bash", text, str(project), known=TUNNELLED)]
    folder = tmp_path_factory.mktemp("bash")
    real = ran(text, folder, project)
    if "xargs" in text:  # what xargs appends is only known when it runs
        assert len(real) == len(expected)
    else:
        assert sorted(expected) == sorted(real)
    assert not os.path.lexists(project / "made")
