"""The two designs that people write by hand: progress only in the process (the prompt), and act-then-save (state.json).

They use good practice: atomic rename, retries, idempotency keys where the far side takes them. They fail anyway."""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import outlast
from outlast.chaos.eval.world import World
from outlast.chaos.tasks.script import (
    Ask,
    Body,
    BodyRun,
    Do,
    Extend,
    Finish,
    Here,
    Impossible,
    Op,
    Remember,
    Script,
    Sub,
    Task,
    Together,
    Write,
)
from outlast.chaos.timing import Timing
from outlast.core import plan as plans

RETRIES = 3
BEATS_MAX = 500


class HandWritten:
    """A loop over steps. With a state file it continues from there; without one it starts over."""

    def __init__(self, world: World, task: Task, state_file: Path | None) -> None:
        self._world = world
        self._task = task
        self._state_file = state_file

    def run(self) -> None:
        """Carry the task to its end, and leave the results for the comparison."""
        state = self._load()
        self._carry(self._task.script, state, "", durable=True)
        for check in self._task.checks:
            limit_s = Timing.current().check_limit_s
            subprocess.run(check, shell=True, cwd=self._world.work, timeout=limit_s, check=True)
        (self._world.folder / "results.json").write_text(json.dumps(state["results"]))

    def _load(self) -> dict[str, Any]:
        if self._state_file is not None and self._state_file.exists():
            state: dict[str, Any] = json.loads(self._state_file.read_text())
            return state
        return {"plan": None, "cursor": 0, "results": {}, "memory": {}, "over": False}

    def _save(self, state: dict[str, Any]) -> None:
        if self._state_file is None:
            return
        fresh = self._state_file.with_suffix(".tmp")
        fresh.write_text(json.dumps(state))
        os.replace(fresh, self._state_file)

    def _carry(self, script: Script, state: dict[str, Any], prefix: str, *, durable: bool) -> None:
        if script.plan is not None and state["plan"] is None:
            state["plan"] = _leaves(script.planned(self._world.ask, prefix))
            if durable:
                self._save(state)
        while not state["over"]:
            number = state["cursor"] + 1
            assert number <= BEATS_MAX, f"{script.name} does not end"
            here = Here(f"{prefix}{number}", self._step(state, number), number, self._world.work)
            self._world.begin(here.label)
            result = self._through(script.body(here), here, state)
            self._world.mark("save.before")
            state["results"][here.label] = result
            state["cursor"] = number
            state["over"] = state["over"] or (state["plan"] is not None and number >= len(state["plan"]))
            if durable:
                self._save(state)
            self._world.saved(here.label)

    def _step(self, state: dict[str, Any], number: int) -> str:
        steps = state["plan"]
        return steps[number - 1] if steps is not None else f"beat {number}"

    def _through(self, body: Body, here: Here, state: dict[str, Any]) -> Any:
        played = BodyRun(body)
        while played.op is not None:
            try:
                answer = self._apply(played.op, here, state)
            except Impossible as error:
                played.refuse(str(error))
            else:
                played.answer(answer)
        return played.result

    def _apply(self, op: Op, here: Here, state: dict[str, Any]) -> Any:
        match op:
            case Ask():
                self._world.mark("decide.before")
                answer = self._world.ask(here.identity("ask", op.name), op.about, op.size)
                self._world.mark("decide.after")
                return answer
            case Do():
                return self._act(op, here)
            case Together():
                return [self._act(act, here) for act in op.acts]
            case Sub():
                return self._child(op.script, here, state)
            case Write():
                return write(self._world.work / op.path, op.text)
            case Remember():
                state["memory"][op.name] = op.uri
            case Extend():
                at = here.number if op.where == "next" else len(state["plan"])
                state["plan"][at:at] = op.steps
            case Finish():
                state["over"] = True
                state["result"] = op.result
        return None

    def _child(self, script: Script, here: Here, state: dict[str, Any]) -> Any:
        child: dict[str, Any] = {"plan": None, "cursor": 0, "results": {}, "memory": {}, "over": False}
        self._carry(script, child, here.inside(script), durable=False)
        state["results"].update(child["results"])
        return child.get("result")

    def _act(self, op: Do, here: Here) -> Any:
        """Act, and retry if it did not seem to work, as every such loop does."""
        self._world.mark("act.before")
        identity = op.key or here.identity("act", op.name)
        for left in reversed(range(RETRIES)):
            try:
                outcome = self._once(op, identity)
                break
            except outlast.DidNotHappen as error:
                if not left:
                    raise Impossible(str(error)) from error
            except Exception:
                if not left:
                    raise
        self._world.mark("act.after")
        return outcome

    def _once(self, op: Do, identity: str) -> Any:
        if op.cls == "keyed":
            key = op.key or hashlib.sha256(json.dumps(op.body).encode()).hexdigest()
            return self._world.keyed(op.name, op.body, identity, op.patience_s, idempotency_key=key)
        act = self._world.probed if op.cls == "probed" else self._world.blind
        return act(op.name, op.body, identity, op.patience_s)


def write(path: Path, text: str) -> None:
    """Write a file atomically, as an editor does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + "~")
    fresh.write_text(text)
    os.replace(fresh, path)


def _leaves(given: object) -> list[str]:
    return [step.name for _, step in plans.walk(plans.parse(given)) if not step.steps]
