"""The known facts about an agent's releases, as plain data. `common/versions.py` finds and judges a version."""

import os
import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """An agent's capabilities. `intent`: how we learn of a call before it runs; empty: only afterwards."""

    intent: tuple[Literal["hooks", "shims", "transcript"], ...] = ()
    resume: bool = False
    preassigned_session: bool = False  # whether it takes a session id that we chose
    mends: bool = False  # whether a transcript can be given results that it lacks
    tells: bool = False  # whether its model reads the answer to a hook after a call
    # Whether all calls of a response ask before the first of them runs, and the transcript tells where a response ends.
    tells_steps: bool = False
    http_hooks: bool = False  # whether its hooks may come by HTTP
    response_ids: bool = False  # whether its usage is keyed by its provider's own ids, as a gateway sees them


@dataclass(frozen=True, slots=True)
class Names:
    """An agent's names: as a program, as a package for npx or uvx, as a module, and by its file's path."""

    programs: frozenset[str]
    packages: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    file: re.Pattern[str] | None = None

    def is_ours(self, path: str) -> bool:
        return os.path.basename(path) in self.programs or self.is_file(path)

    def is_file(self, path: str) -> bool:
        return bool(path) and self.file is not None and self.file.search(path) is not None


@dataclass(frozen=True, slots=True)
class OwnTools:
    """The tools that an agent brings along, if a name alone does not tell them from an MCP server's tools."""

    names: frozenset[str]
    prefix: str  # makes another tool's name one that is known for an MCP server's

    def full_name(self, tool: str) -> str:
        """Its name in the rules for outward calls: `mcp_SERVER_TOOL` for a tool that is not the agent's own."""
        return tool if tool in self.names or tool.startswith("mcp") else f"{self.prefix}{tool}"


@dataclass(frozen=True, slots=True)
class EmptyReleases:
    """Releases that do nothing but say farewell, from one version on."""

    since: tuple[int, int]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An agent's names, capabilities and tried versions: outlast refuses older ones and announces newer ones."""

    name: str
    names: Names
    caps: Caps
    oldest: tuple[int, int]
    newest: tuple[int, int]
    title: str = ""  # in messages, where it is not the name
    upgrade: str = ""  # how to get a newer one
    packages: tuple[str, ...] = ()  # of npm: their package.json names the version
    distribution: str = ""  # of Python: its metadata names the version
    answers_version: bool = True  # whether `--version` is answered and does nothing else
    empty: EmptyReleases | None = None
    own_tools: OwnTools | None = None
