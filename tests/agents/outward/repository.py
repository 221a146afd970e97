"""The few files that make a folder a repository for whoever only reads them."""

from pathlib import Path


def on_main(folder: Path, config: str) -> None:
    """A repository on branch main with this configuration and no commit."""
    git = folder / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "objects").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(config)
