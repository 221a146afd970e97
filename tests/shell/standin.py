"""What stands for the agent and for `gh` in the loops' tests, and what strikes: by its name on the PATH.

The world outside is the witness, with a log of its own. One blow falls per world: the file that allows it is removed
first. BLOW says where it falls, whom it hits and with what: `gh.after script+keeper KILL`.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from outlast.chaos.witness.client import Client, performances


def strike(here: str) -> None:
    """Hit whoever is to be hit, if this is the place and it was not done before."""
    place, whom, name = os.environ.get("BLOW", "- - -").split()
    allowed = Path(os.environ["ONCE"])
    if place != here or not allowed.exists():
        return
    allowed.unlink()
    number = signal.Signals[f"SIG{name}"]
    script = int(os.environ["SCRIPT"]) if "SCRIPT" in os.environ else _script()
    if "group" in whom:
        os.killpg(os.getpgid(script), number)
    for pid in [*(_keepers() if "keeper" in whom else []), *([script] if "script" in whom else [])]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _keepers() -> list[int]:
    """Who keeps the run: a keeper, or guardian and supervisor."""
    me = os.environ["XDG_STATE_HOME"].encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            keeps = b"__keep" in words or (b"run" in words and any(w.endswith(b"outlast") for w in words))
            if keeps and b"XDG_STATE_HOME=" + me in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def _script() -> int:
    """The loop: the ancestor whose words end with the list."""
    pid = os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"issues.txt" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
    raise SystemExit("no loop above")


def agent(words: list[str]) -> None:
    number = words[-1].split()[2].rstrip(".")
    with open(f"fix-{number}", "w") as file:
        file.write("half")
        file.flush()
        strike("agent.middle")
        file.seek(0)
        file.write(f"fixed {number}\n")
    print(f"fixed {number}")


def gh(words: list[str]) -> None:
    what, number = words[1], words[2]
    if what == "view":
        told = [
            item.body for item in performances(Path(os.environ["WITNESS_LOG"])) if item.identity == number
        ]
        print("\n".join(map(json.dumps, told)))
        return
    strike("gh.before")
    Client(os.environ["WITNESS"]).act("probed", "comment", words[-1], marker=words[-1], identity=number)
    strike("gh.after")


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    if name == "strike":
        strike("line")
    elif name == "gh":
        gh(sys.argv[1:])
    else:
        agent(sys.argv[1:])
