"""An outlast of its own that a test may remove or replace: a virtual environment with a copy of this tree in it."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import outlast

LIBRARIES = ("msgspec", "apsw")
MOVED = "supervisor/client", "supervisor/agent", "supervisor/attempt", "supervisor/socket", "agents/outward"


class Installed:
    """`bin/outlast` and what it needs, below one folder. `package`: another one than this tree's."""

    def __init__(self, folder: Path, package: Path | None = None) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        [libraries] = folder.glob("lib/python*/site-packages")
        for name in LIBRARIES:
            (libraries / name).symlink_to(Path(sysconfig.get_path("platlib")) / name)
        self.package = libraries / "outlast"
        shutil.copytree(package or Path(outlast.__file__).parent, self.package)
        program = folder / "bin" / "outlast"
        program.write_text(
            f"#!{self.python}\nimport sys\nfrom outlast.cli.start import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def remove_package(self) -> None:
        """As `pip uninstall` does, or `pip install --upgrade` for a moment."""
        shutil.rmtree(self.package)

    def replace_package(self) -> None:
        """Another version is there instead, in which most of our modules have other names."""
        for name in MOVED:
            moved = self.package / f"{name}_moved"
            (self.package / name).rename(moved)
        for path in self.package.rglob("*.py"):
            if path.name != "__init__.py":
                path.write_text('raise ImportError("a module of another version")\n')
        (self.package / "_version.py").write_text('__version__ = "99.0.0"\n')

    def upgrade(self, *, wire: int | None = None) -> None:
        """A later version of this very tree is there instead; `wire`: one that speaks that version on the socket."""
        shutil.rmtree(self.package, ignore_errors=True)
        shutil.copytree(Path(outlast.__file__).parent, self.package)
        (self.package / "_version.py").write_text('__version__ = "99.0.0"\n')
        if wire is not None:
            path = self.package / "supervisor" / "socket" / "wire.py"
            text = path.read_text()
            assert text.count("\nVERSION = 1\n") == 1
            path.write_text(
                text.replace("\nVERSION = 1\n", f"\nVERSION = {wire}\n").replace(
                    "omit_defaults=True, tag_", "tag_"
                )
            )

    def remove(self) -> None:
        """With the interpreter."""
        shutil.rmtree(self.folder)
