"""The calls of a trial's model, in the words of the CLI that asks: each kind does one thing that the witness can count.

What the model makes of an answer is in trial_model.py."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agents import trial_mcp
from tests.agents.protocols import translate
from tests.agents.script import Call, bash, write
from tests.agents.trial_plan import Plan, Task

LATER_S = 0.5  # what is left in the background reaches outside after this
WAIT = """\
n=0
until curl -sS {witness}/counts | grep -q "\\"$1\\""; do
    [ $n -lt 50 ] || exit 1
    sleep 0.1
    n=$((n + 1))
done
"""
SUB_AGENTS = ("Agent", "Task", "task")


class Calls:
    """Of one trial. Makefile and package.json lie in the folder where the agent works."""

    def __init__(self, plan: Plan, witness: str, folder: str, work: str) -> None:
        self._plan, self._witness, self._folder, self._work = plan, witness, folder, work

    def lay_out(self) -> None:
        """Write the files that calls go through."""
        Path(self._folder, "wait.sh").write_text(WAIT.format(witness=self._witness))
        tasks = self._plan.tasks.values()
        rules = [f"post-{task.name}:\n\t@{self._posting(task)}\n" for task in tasks if task.kind == "make"]
        scripts = {f"post-{task.name}": self._posting(task) for task in tasks if task.kind == "npm"}
        if rules:
            Path(self._work, "Makefile").write_text("\n".join(rules))
        if scripts:
            package = {"name": "it", "version": "1.0.0", "private": True, "scripts": scripts}
            Path(self._work, "package.json").write_text(json.dumps(package, indent=1))

    def call(self, task: Task, tools: Mapping[str, Any], how: str = "") -> Call:
        """As it is asked for the first time, or in a model's way of repeating it."""
        match task.kind:
            case "write":
                # One line, and not the words for what is done: outlast names a call by its command, a line each.
                return write(f"{self._work}/{task.name}.txt", task.name)
            case "local":
                return bash(
                    self._held(task, f"echo {task.name} >> {self._folder}/ran.log && {_says('done', task)}")
                )
            case "make":
                return bash(f"make post-{task.name}")
            case "npm":
                return bash(f"npm run --silent post-{task.name}")
            case "background":
                return bash(self._left(task, how))
            case "task":
                return self._by_the_cli(task, tools, how)
            case "mcp":
                return self._by_mcp(task, tools, how)
            case "sub":
                return self._by_sub_agent(task, tools, how)
            case _:
                return bash(self._posting(task, how))

    def look(self, task: Task, settle: str) -> Call:
        """What outlast asks of an agent: look, then say what was found."""
        # aider asks its model again only where what it ran has failed.
        undone = "echo it did not happen" + ("; exit 1" if self._plan.agent == "aider" else "")
        return bash(
            f"if {self._found(task)}; then {settle} --happened && {_says('done', task)}; "
            f"else {settle} --did-not && {undone}; fi"
        )

    def another(self, task: Task, settle: str) -> Call:
        """Say that it is another call than the one in doubt."""
        return bash(f"{settle} --another && echo {task.name} is another one")

    def wait(self, task: Task) -> Call:
        """Wait for what was left in the background. In a file: Gemini refuses a command with `$(`."""
        return bash(f"sh {self._folder}/wait.sh {task.name} && {_says('done', task)}")

    # -- the kinds ---------------------------------------------------------------------------------------------------

    def _posting(self, task: Task, how: str = "") -> str:
        flags = "--retry 1 -v" if how == "flags" else ""
        said = "in other words" if how == "words" else "hello"
        body = json.dumps({"body": task.name if task.kind == "same" else said})
        where = "same" if task.kind == "same" else task.name
        post = (
            f"curl -sS -f {flags} -X POST -H 'Witness-Id: {task.name}' -d '{body}' "
            f"{self._witness}/act/blind/{where} && {_says('done', task)}"
        )
        return self._held(task, post)

    def _held(self, task: Task, command: str) -> str:
        hold = f"sh {self._folder}/hold.sh {task.name}"
        match task.hold:
            case "before":
                return f"{hold}; {command}"
            case "after":
                return f"{command}; {hold}"
            case _:
                return command

    def _found(self, task: Task) -> str:
        return f"curl -sS {self._witness}/counts | grep -q '\"{task.name}\"'"

    def _left(self, task: Task, how: str) -> str:
        inner = shlex.quote(f"sleep {LATER_S}; {self._posting(task, how)}")
        # Codex kills the group of a command that has ended; what shall live on needs a session of its own.
        own = "setsid" if "codex" in (self._plan.agent, self._plan.other) else ""
        return f"nohup {own} sh -c {inner} >/dev/null 2>&1 & {_says('started', task)}"

    def _by_the_cli(self, task: Task, tools: Mapping[str, Any], how: str) -> Call:
        """By the CLI's own switch; one without it leaves that to the shell."""
        name, given = translate(bash(f"sleep {LATER_S}; {self._posting(task, how)}"), tools)
        schema = tools.get(name)
        known = schema.get("properties", {}) if isinstance(schema, dict) else {}
        switch = next((each for each in ("run_in_background", "is_background") if each in known), None)
        if switch is None:
            return bash(self._left(task, how))
        about = {"description": "it"} if "description" in known else {}  # Kimi Code asks for one
        return Call(name, {**about, **given, switch: True})

    def _by_mcp(self, task: Task, tools: Mapping[str, Any], how: str) -> Call:
        name = next((each for each in tools if each.endswith(trial_mcp.TOOL)), None)
        if name is None:
            return bash(self._posting(task, how))
        return Call(name, {"name": task.name, "body": "in other words" if how == "words" else "hello"})

    def _by_sub_agent(self, task: Task, tools: Mapping[str, Any], how: str) -> Call:
        name = next((each for each in SUB_AGENTS if each in tools), None)
        schema = tools.get(name) if name else None
        if name is None or not isinstance(schema, dict):
            return bash(self._posting(task, how))
        known = schema.get("properties", {})
        kind = known.get("subagent_type", {}).get(
            "enum", [_SUB_AGENT.get(self._plan.agent, "general-purpose")]
        )[0]
        given = {
            "description": "a part",
            "prompt": f"SUBTASK {task.name}: make that call",
            "subagent_type": kind,
        }
        given |= {"run_in_background": False} if "run_in_background" in known else {}
        return Call(name, {key: value for key, value in given.items() if key in known})


def _says(word: str, task: Task) -> str:
    """Print `done-NAME`. The command itself does not hold that, for it is told where nothing was done too."""
    return f"printf '{word}-%s\\n' {task.name}"


_SUB_AGENT = {"opencode": "general", "kimi-code": "coder", "kimi-cli": "coder"}
