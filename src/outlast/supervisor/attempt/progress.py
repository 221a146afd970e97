"""Progress of an attempt: files in a state that no attempt of the run left before, or calls that it made outside."""

import contextlib
import os
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from outlast.core import events as ev
from outlast.errors import OutlastError
from outlast.runs.engine.run import RunEngine
from outlast.runs.files import Files
from outlast.runs.journal import Journal
from outlast.workspace import saves
from outlast.workspace.git import objects
from outlast.workspace.git.trees import TreeEditor

NAME = "trees"
TREES_MAX = 1_000


def has_progress(run: RunEngine, folder: Path, point: str) -> bool:
    """Whether the attempt changed something for good: its files, or the world outside.

    A call that ended well is not made again, so the next attempt gets farther.
    """
    attempt = run.state.attempt
    has_new_files = _has_new_files(run.files, folder, point)  # notes what it finds, so it always looks
    return has_new_files or (attempt is not None and _has_made_calls(run.journal, attempt.seq))


def _has_new_files(files: Files | None, folder: Path, point: str) -> bool:
    """Whether the files are as no attempt left them before, nor as the save `point` has them.

    A file there that our own output is redirected to does not count. Notes what it found in the run's `folder`.
    """
    if files is None:
        return False
    with contextlib.suppress(OutlastError, OSError):
        algo, reader, now = files.saver.repo().algo, files.saver.reader(), files.saver.peek()
        began = saves.read(reader, point, algo).tree

        def read(oid: str) -> bytes:
            return now.trees[oid] if oid in now.trees else reader.read(oid)[1]

        ours = list(_redirected(files.saver.folder))
        tree, first = (_without(tree, ours, TreeEditor(tree, read, algo), algo) for tree in (now.tree, began))
        return _is_new(folder, tree, first)
    return False


def _has_made_calls(journal: Journal, since: int) -> bool:
    """Whether a call that reaches outside was made after this sequence number, and ended well."""
    made: set[tuple[int, int]] = set()
    for event in journal.events("effect_intended", "effect_confirmed", "effect_settled", after=since):
        match event:
            case ev.EffectIntended(policy="tell"):
                made.add((event.beat, event.n))
            case ev.EffectConfirmed() if (event.beat, event.n) in made:
                result = journal.value(event.result)
                if not isinstance(result, dict) or result.get("ok") is not False:
                    return True
            case ev.EffectSettled(finding="happened") if (event.beat, event.n) in made:
                return True
            case _:
                pass
    return False


def _is_new(folder: Path, tree: str, began: str) -> bool:
    """Whether no attempt ended with this tree before, nor the run began with it; from now on one has."""
    path = folder / NAME
    known = path.read_text().split() if path.exists() else []
    if tree == began or tree in known:
        return False
    temporary = path.with_name(f".{NAME}.{os.getpid()}")
    temporary.write_text("\n".join([*known[-TREES_MAX:], tree]) + "\n")
    temporary.replace(path)
    return True


def _without(tree: str, paths: list[bytes], editor: TreeEditor, algo: objects.Algo) -> str:
    """The tree as it were without these files; nothing is written."""
    is_there = [editor.remove(path) for path in paths]
    return editor.write(partial(objects.oid_of, algo=algo)) if any(is_there) else tree


def _redirected(folder: Path, fds: Iterable[int] = (1, 2)) -> Iterable[bytes]:
    """The files of a folder that our standard output and error go to."""
    top = os.fsencode(os.path.realpath(folder)) + b"/"
    for fd in fds:
        with contextlib.suppress(OSError):
            path = os.readlink(os.fsencode(f"/proc/self/fd/{fd}"))
            if stat.S_ISREG(os.fstat(fd).st_mode) and path.startswith(top):
                yield path.removeprefix(top)
