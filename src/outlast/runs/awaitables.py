"""Values that may also be awaited, so that the same names work in a blocking and in an async run."""

from collections.abc import Generator


class AwaitableText(str):
    """A text that may also be awaited, so that the same names work in an async run."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, str]:
        yield from ()
        return str(self)


class _Nothing:
    """Nothing, which may be awaited."""

    def __await__(self) -> Generator[None]:
        yield from ()


NOTHING = _Nothing()
