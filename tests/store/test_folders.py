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
