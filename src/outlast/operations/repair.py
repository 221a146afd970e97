"""The repairs of `outlast doctor --repair`: heads and indexes, refs of saves, permissions. Deletes nothing."""

import contextlib
import os
import stat

from outlast.errors import OutlastError
from outlast.inspect import doctor_all
from outlast.store.protocol import Store, StorePlace
from outlast.workspace.git import refs


def repair(place: StorePlace) -> list[str]:
    """Put back what can be put back; one sentence for each thing done."""
    if not place.exists():
        return []
    done = [*place.repair(), *_permissions(place)]
    store = place.open(reading=True)
    try:
        return done + _refs(place, store)
    finally:
        store.close()


def _refs(place: StorePlace, store: Store) -> list[str]:
    """Put a ref on the newest save of each run that none keeps."""
    done = []
    _, runs = place.examine_all()
    for run in runs:
        if run.state is None or not run.state.last_save or run.state.parent is not None:
            continue
        save = doctor_all.save_of(store, run)
        if save is None or not save.is_there or save.is_anchored:
            continue
        try:
            refs.write_ref(save.git_dir, save.ref, save.commit, old=refs.read_ref(save.git_dir, save.ref))
        except OutlastError as error:
            done.append(f"run {run.run} ({run.task}): the ref {save.ref} cannot be put back: {error}")
        else:
            done.append(
                f"run {run.run} ({run.task}): {save.ref} keeps its newest save {save.commit[:12]} again"
            )
    return done


def _permissions(place: StorePlace) -> list[str]:
    """Close to others what is ours."""
    closed = 0
    for path in list(doctor_all.private_paths(place)):
        with contextlib.suppress(OSError):
            found = path.lstat()
            is_ours = found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
            if is_ours and doctor_all.is_open_to_others(found.st_mode):
                path.chmod(stat.S_IMODE(found.st_mode) & 0o700)
                closed += 1
    return [f"{closed:,} files and folders were closed to other users"] if closed else []
