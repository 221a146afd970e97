"""New folders have durable names: each is flushed through the folder above it."""

import os
from pathlib import Path

import pytest

from outlast.store import durable


def test_every_new_folder_is_made_durable_through_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    durable.make_folder(tmp_path / "a" / "b")
    assert flushed == [str(tmp_path), str(tmp_path / "a")]


def test_a_payload_costs_two_flushes_and_one_more_where_its_folder_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one in a process that did not make the folders: their maker may have been killed before it flushed their names."""
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    root = tmp_path / "blobs"
    root.mkdir()
    payloads = [f"{number} {'x' * 5_000}".encode() for number in range(60)]
    first = durable.FolderBlobs(root, _NoBallast())
    for payload in payloads:
        first.put(payload)
    folders = len([each for each in root.iterdir() if each.is_dir()])
    assert len(flushed) == 2 * len(payloads) + folders
    flushed.clear()
    again = durable.FolderBlobs(root, _NoBallast())
    for payload in payloads:
        again.put(payload)
    assert len(flushed) == len(payloads) + 1, "the payloads are there, their names perhaps not yet"


class _NoBallast:
    def make_room(self) -> None:
        raise AssertionError("there is room")
