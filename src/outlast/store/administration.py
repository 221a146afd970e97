"""What a person does to a store that hosts share: make it, migrate it, accept a server that may have lost events."""

from typing import Protocol, cast

from outlast.store import locate


class SharedPlace(Protocol):
    """A store in a database. What there is to say is in the lines returned; none means that nothing changed."""

    @property
    def url(self) -> str:
        """Its one URL, without a password."""

    def init(self, *, with_roles: bool = False) -> list[str]:
        """Make it, and its roles if they are wanted; where there is one already, nothing changes."""

    def roles(self) -> list[str]:
        """The SQL that makes its roles, for an administrator."""

    def migrate(self) -> list[str]:
        """Bring its schema to this version."""

    def accept(self) -> list[str]:
        """Work on with the server as it is now."""


def shared(url: str) -> SharedPlace | None:
    """The store at a URL; None for one that needs no making, in a folder."""
    place = locate(url)
    return cast("SharedPlace", place) if hasattr(place, "init") else None
