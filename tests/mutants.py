"""The mutation check: break the code on purpose, one break at a time; each must turn the tests red.

    ./dev mutants [NAME…]      all of them, or those whose name contains one of the words; -l lists them

A mutation is an exact replacement in a copy of `src`; the working tree is not touched. Beside each stand the tests
that are expected to notice, so that a mutant takes seconds. Exit code 1 when one survives or no longer applies, or
when the tests beside it fail without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.mutations.mutant import Mutant

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 240
ALL_LIMIT_S = 3600  # every test that stands beside some mutant, once
JOBS = 2
MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for file in sorted((ROOT / "tests" / "mutations").glob("*.py"))
    for mutant in getattr(import_module(f"tests.mutations.{file.stem}"), "MUTANTS", ())
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed (good), survived, does not apply, or its tests are broken."""

    word: str
    seconds: float = 0.0
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.word == "killed"


def judge(mutant: Mutant) -> Verdict:
    """Break a copy and run the tests that must notice."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="outlast-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "outlast" / mutant.file
        text = path.read_text() if path.exists() else ""
        if text.count(mutant.old) != 1:
            return Verdict("does not apply", 0, f"{mutant.file} has it {text.count(mutant.old)} times")
        path.write_text(text.replace(mutant.old, mutant.new))
        code, output = run_tests(mutant.tests, source, Path(folder))
    seconds = time.monotonic() - started
    if code == 1:
        return Verdict("killed", seconds, _first_failure(output))
    if code == 0:
        return Verdict("survived", seconds, " ".join(mutant.tests))
    return Verdict("tests broken", seconds, f"pytest exit code {code}: {output[-400:]}")


def run_tests(
    tests: tuple[str, ...], source: Path, folder: Path, limit_s: float = LIMIT_S, jobs: int = 0
) -> tuple[int, str]:
    """Run a selection of tests against the package in `source`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--seed", "1"]
    command += ["-n", str(jobs), "--basetemp", str(folder / "tmp"), *tests]
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "FAILED it never ended"
    return done.returncode, done.stdout + done.stderr


def _first_failure(output: str) -> str:
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].partition("::")[2][:70] if failed else ""


def imports_the_copy() -> bool:
    """PYTHONPATH must win over the installed package, else nothing was mutated at all."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "outlast").mkdir()
        (Path(folder) / "outlast/__init__.py").write_text("raise SystemExit(42)")
        env = {**os.environ, "PYTHONPATH": folder}
        return subprocess.run([sys.executable, "-c", "import outlast"], env=env, check=False).returncode == 42


def chosen(words: list[str]) -> list[Mutant]:
    return [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]


def main(words: list[str]) -> int:
    if "-l" in words:
        print("\n".join(f"{mutant.name}  ({mutant.file})" for mutant in MUTANTS))
        return 0
    mutants = chosen(words)
    if not mutants:
        print("error: no mutant is called that\nhint: ./dev mutants -l", file=sys.stderr)
        return 2
    if not imports_the_copy():
        print("error: PYTHONPATH does not win over the installed outlast", file=sys.stderr)
        return 2
    selection = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    with tempfile.TemporaryDirectory(prefix="outlast-mutant-") as folder:
        code, output = run_tests(selection, ROOT / "src", Path(folder), ALL_LIMIT_S, 2 * JOBS)
    if code != 0:
        print(output[-3000:])
        print("error: these tests fail without any mutation", file=sys.stderr)
        return 1
    width = max(len(mutant.name) for mutant in mutants)
    good = True
    with ThreadPoolExecutor(JOBS) as pool:
        for mutant, verdict in zip(mutants, pool.map(judge, mutants), strict=True):
            print(
                f"{mutant.name:{width}}  {verdict.word:14}  {verdict.seconds:5.1f} s  {verdict.detail}",
                flush=True,
            )
            good = good and verdict.good
    print(f"{len(mutants)} mutants, {'all killed' if good else 'NOT all killed'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
