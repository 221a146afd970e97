"""Billing by login: the login decides the model, who pays and where calls go. Each agent reads its own login."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from outlast.agents.events import UsageReport
from outlast.agents.values import Ask, Payment, Route


class Login(Protocol):
    """The login that an agent would use, as its files, its environment and its command show it."""

    @property
    def model(self) -> str: ...

    def payment(self) -> Payment: ...

    def account(self) -> str: ...

    def gateway(self, ask: Ask, route: Route) -> Ask | str: ...


# A command, its environment and its folder → the login that it would use.
ReadLogin = Callable[[Sequence[str], Mapping[str, str], Path], Login]


@dataclass(frozen=True, slots=True)
class LoginBilling:
    """The `Billing` of an agent, all by its login. Its transcript has its usage."""

    login: ReadLogin

    def model(self, words: Sequence[str], environment: Mapping[str, str], cwd: Path) -> str:
        return self.login(words, environment, cwd).model

    def payment(self, ask: Ask) -> Payment:
        return self._login(ask).payment()

    def account(self, ask: Ask) -> str:
        return self._login(ask).account()

    def gateway(self, ask: Ask, route: Route) -> Ask | str:
        return self._login(ask).gateway(ask, route)

    def spent(self, ask: Ask) -> Iterable[UsageReport]:
        return ()

    def _login(self, ask: Ask) -> Login:
        return self.login(ask.words, ask.environment, ask.cwd)
