"""Notices as runs make them, and settings of a user's own file."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from outlast.notifications.notice import Notice, NoticeAct
from tests.support.environment import Isolated

NOW = datetime(2026, 11, 19, 2, 0, tzinfo=UTC)
ASKED = NoticeAct(act="resume", subject="1", label="Resume")


def notice(task: str = "1411", what: str = "needs a person", **fields: Any) -> Notice:
    """A notice of a run of this task."""
    given: dict[str, Any] = {
        "why": "look whether the push happened", "run": f"run{task}", "project": "/src/app", "goal": "Fix it", "status": "parked",
        "cause": "crash", "standing": "in_doubt", "needs": "person", "beats": 3, "workspace": "/src/app", "last_save": None,
        "at": datetime.now(UTC), "line": f"{task} needs you: look whether the push happened", "command": f"outlast settle {task} 3.1",
    }  # fmt: skip
    return Notice(task=task, what=what, **given | fields)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def own_settings(state: Isolated, **values: object) -> Path:
    """The user's own file, with these in `[notify]`; a name with `ui_` stands above it."""
    path = state.config_home / "outlast/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    above = [f"{name} = {json.dumps(value)}" for name, value in values.items() if name.startswith("ui_")]
    below = [f"{name} = {json.dumps(value)}" for name, value in values.items() if not name.startswith("ui_")]
    path.write_text("\n".join([*above, "[notify]", *below]) + "\n")
    return path


def private(path: Path, text: str) -> str:
    """A file of mode 600 with this line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(f"{text}\n")
    return str(path)
