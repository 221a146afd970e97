"""The program that a guardian starts when its supervisor is dead: one save of the workspace, its commit on stdout."""

import os
import sys
from pathlib import Path

from outlast import decoders, settings
from outlast.core.values import shorten
from outlast.errors import OutlastError
from outlast.store.local import Local
from outlast.supervisor.guardian.link import GuardianMessage
from outlast.workspace.capture.saver import Saver
from outlast.workspace.rules import Limits
from outlast.workspace.types import Purpose


def main(words: list[str]) -> int:
    """Save the files that have changed. Returns 0 also if there is nothing to save."""
    charge = decoders.decode(words[0], GuardianMessage)
    if not charge.workspace:
        return 0
    folder = Path(charge.workspace)
    # the agent may have written what it likes into the repository's file
    settings.tolerate(lambda error: None)
    found = settings.load(folder)
    saver = Saver(
        folder, Local(Path(charge.root)), limits=Limits.of(found), shadow=found["save_where"] == "shadow"
    )
    purpose = Purpose(
        kind="emergency",
        run=charge.run,
        task=charge.task,
        reason=shorten(f"crash: {words[1]}", 200),
        if_dirty=True,
    )
    try:
        save = saver.capture(purpose)
    except OutlastError as error:
        os.write(2, f"{error}\n".encode())
        return 1
    finally:
        saver.close()
    if save is not None:
        os.write(1, f"{save.commit}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
