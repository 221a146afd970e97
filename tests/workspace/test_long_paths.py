"""Paths that are longer than the kernel takes: nobody can save them in one step, so the save names them."""

import os
import shutil
from pathlib import Path

from tests.workspace.workspace import Workspace


def dig(folder: Path, levels: int, letters: int = 200) -> None:
    """A file below so many folders, each with a name of so many letters."""
    name = "d" * letters
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_what_is_too_deep_for_the_kernel_is_named_and_the_rest_is_saved(place: Workspace) -> None:
    dig(place.folder, 25)
    place.write("y", b"saved")
    saved = place.save()
    ((path, why),) = [(left.path, left.why) for left in saved.left_out]
    assert why == "holds paths that are too long"
    assert path.endswith("d/")
    assert (place.folder / path).is_dir()
    assert place.content(saved, "y") == b"saved"
    place.write("y", b"later")
    assert place.restore(saved).left_alone == (path,)
    shutil.rmtree(place.folder / ("d" * 200))
    assert place.save().left_out == ()


def test_a_path_that_is_short_enough_only_from_the_workspace_on_is_named(place: Workspace) -> None:
    dig(place.folder, 20, 203)  # 4,084 bytes from the workspace on; the kernel takes 4,095
    place.write("y", b"saved")
    saved = place.save()
    assert len(saved.left_out) == 1
    assert saved.left_out[0].path.startswith("d" * 203)
    assert place.content(saved, "y") == b"saved"
    shutil.rmtree(place.folder / ("d" * 203))
