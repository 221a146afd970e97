"""Entry of the benchmarks: makes benchmarks/.venv with the peers, once, then measures in it.

Standard library only: it runs before there is an environment. A stamp in it saves the network on a second run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "stamp.json"
REASON_CHARS_MAX = 200


def requirements() -> list[str]:
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def fingerprint() -> str:
    """Changes with the path, the Python, the list of peers and the way to install outlast."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    outlast = [settings["build-system"], settings["project"]]
    parts = [str(ROOT), sys.version, (HERE / "requirements.txt").read_text(), json.dumps(outlast)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def ready() -> bool:
    try:
        return PYTHON.exists() and json.loads(STAMP.read_text())["fingerprint"] == fingerprint()
    except (OSError, ValueError, KeyError):
        return False


def pip_install(*what: str) -> str | None:
    """Install; return None, or the last line of pip's complaint."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    return (errors or done.stdout.splitlines() or ["pip printed nothing"])[-1][:REASON_CHARS_MAX]


def install_peers() -> dict[str, str]:
    """All at once, which is fast; one by one if that fails, to name those that cannot be installed."""
    wanted = requirements()
    if pip_install(*wanted) is None:
        return {}
    reasons = {requirement: pip_install(requirement) for requirement in wanted}
    return {requirement: reason for requirement, reason in reasons.items() if reason is not None}


def build() -> None:
    print(f"making {VENV.relative_to(ROOT)} with the peers (once, about a minute)", file=sys.stderr)
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    missing = install_peers()
    reason = pip_install("--editable", str(ROOT))
    if reason is not None:
        missing["outlast"] = reason
    stamp = {"fingerprint": fingerprint(), "missing": missing}
    STAMP.with_suffix(".new").write_text(json.dumps(stamp, indent=1))
    STAMP.with_suffix(".new").replace(STAMP)


def main() -> None:
    arguments = [argument for argument in sys.argv[1:] if argument != "--rebuild"]
    if "--rebuild" in sys.argv[1:] or not ready():
        build()
    os.environ["PYTHONPATH"] = str(ROOT)
    os.execv(PYTHON, [str(PYTHON), "-P", "-m", "benchmarks", *arguments])


if __name__ == "__main__":
    main()
