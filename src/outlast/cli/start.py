"""The way in: what the `outlast` command calls. Nothing is imported before Ctrl-C can end it in one line."""

import os

_EXIT_INTERRUPTED = 130


def main() -> int:
    """Run one command; its exit code."""
    try:
        from outlast.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        return _EXIT_INTERRUPTED
