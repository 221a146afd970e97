"""The address of a channel: what the setting says, or what a private file holds. Addresses of webhooks are passwords."""

from pathlib import Path

from outlast.errors import UsageError
from outlast.notifications import private_files
from outlast.notifications.post import Unsent


def url_of(setting: str, what: str) -> str:
    """The URL that a setting gives, or the file that it names. Raises Unsent."""
    return setting if "://" in setting else held_in(setting, what)


def held_in(setting: str, what: str) -> str:
    """The secret in the file that a setting names. Raises Unsent."""
    try:
        return private_files.read(Path(setting).expanduser(), what)
    except (UsageError, RuntimeError) as error:
        hint = getattr(error, "hint", "")
        raise Unsent(f"{error}{f'; {hint}' if hint else ''}") from error
