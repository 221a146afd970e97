"""A stand-in for Claude Code: runs the commands that a file lists, one response each, with the hooks that it was given.

It keeps a transcript as the real one does, and goes on where its session's transcript ends; a fresh session starts over.
Nothing of ours is imported. Beside it lie `script` (JSON: the commands, in order), `asked` (a line for each response that
a model would have been paid for) and `told` (a JSON line for each prompt).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(sys.argv[0]).parent
VERSION = "2.1.325 (Claude Code)"


class Session:
    """One process of it."""

    def __init__(self, words: list[str]) -> None:
        given = {
            name: words[words.index(name) + 1]
            for name in ("--session-id", "--resume", "--settings")
            if name in words
        }
        self.id = given.get("--resume") or given["--session-id"]
        self.hooks = json.loads(Path(given["--settings"]).read_text())["hooks"]
        project = re.sub(r"[^a-zA-Z0-9]", "-", os.getcwd())
        self.transcript = Path(os.environ["HOME"]) / ".claude/projects" / project / f"{self.id}.jsonl"
        self.transcript.parent.mkdir(parents=True, exist_ok=True)

    def write(self, kind: str, content: object, **more: object) -> None:
        known = {
            "type": kind,
            "sessionId": self.id,
            "uuid": os.urandom(8).hex(),
            "timestamp": "2026-11-15T06:54:28.652Z",
        }
        line = json.dumps({**known, "message": {"role": kind, "content": content, **more}})
        with self.transcript.open("a") as file:
            file.write(f"{line}\n")

    def say(self, *content: object) -> None:
        with (HERE / "asked").open("a") as file:
            file.write("response\n")
        usage = {"input_tokens": 100, "output_tokens": 10}
        self.write("assistant", content, id=f"msg_{os.urandom(8).hex()}", model="scripted", usage=usage)

    def hook(self, event: str, **told: object) -> str:
        """Why the hook denies it; empty where it does not."""
        known = {"session_id": self.id, "transcript_path": str(self.transcript), "cwd": os.getcwd()}
        data = json.dumps({**known, "hook_event_name": event, **told}).encode()
        for each in [hook for group in self.hooks.get(event, []) for hook in group["hooks"]]:
            done = subprocess.run(["sh", "-c", each["command"]], input=data, capture_output=True, check=False)
            if done.returncode == 2:
                return done.stderr.decode()
            answer = json.loads(done.stdout or b"{}").get("hookSpecificOutput", {})
            if answer.get("permissionDecision") == "deny":
                return str(answer["permissionDecisionReason"])
        return ""

    def call(self, number: int, command: str) -> None:
        call = f"toolu_{self.id[:8]}{number}"
        told = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call}
        self.say({"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}})
        denied = self.hook("PreToolUse", **told)
        code, out = (1, denied) if denied else run(command)
        if not denied and code:
            self.hook("PostToolUseFailure", **told, error=f"Exit code {code}\n{out}")
        elif not denied:
            self.hook(
                "PostToolUse", **told, tool_response={"stdout": out, "stderr": "", "interrupted": False}
            )
        self.write(
            "user", [{"type": "tool_result", "tool_use_id": call, "content": out, "is_error": bool(code)}]
        )
        self.hook("PostToolBatch")

    def calls(self) -> int:
        text = self.transcript.read_text() if self.transcript.exists() else ""
        return text.count('"type": "tool_use"')


def run(command: str) -> tuple[int, str]:
    """As its shell tool does: over when the shell is, whatever that left running."""
    with tempfile.TemporaryFile() as file:
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
        )
        file.seek(0)
        return done.returncode, file.read().decode(errors="replace")


def main(words: list[str]) -> None:
    if "--version" in words:
        print(VERSION)
        return
    session = Session(words)
    prompt = words[words.index("-p") + 1] if "-p" in words else words[-1]
    with (HERE / "told").open("a") as file:
        file.write(f"{json.dumps(words)}\n")
    session.hook("UserPromptSubmit", prompt=prompt)
    session.write("user", prompt)
    commands = json.loads((HERE / "script").read_text())
    for number in range(session.calls(), len(commands)):
        session.call(number, commands[number])
    session.say({"type": "text", "text": "All is done."})
    session.hook("Stop")
    print("All is done.")


if __name__ == "__main__":
    main(sys.argv[1:])
