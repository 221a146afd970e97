"""The tools as a client sees them: names, descriptions, schemas. What they take and give is `supervisor.socket.tools`."""

import functools
from typing import Any

import msgspec

from outlast.supervisor.socket import tools

INSTRUCTIONS = (
    "This agent works in a run of outlast, which records its work and its acts on the outside world, and goes on after a crash. "
    "Look at your budget before large pieces of work. If outlast told you to look up a call whose outcome is unknown, look "
    "outside first, then use settle. Nothing here reaches outside."
)
OUTSIDE = "outlast: this agent was not started by outlast, so there are no tools here. Start it with `outlast run -- COMMAND` to have them."


class AgentTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `reads`: it puts nothing on record."""

    name: str
    title: str
    description: str
    arguments: type[tools.Arguments]
    result: type[msgspec.Struct]
    reads: bool = False


TOOLS = (
    AgentTool(
        name="budget", title="Budget of this run", arguments=tools.NoArguments, result=tools.BudgetResult, reads=True,
        description="What this run has spent and has left: tokens, money, time, beats. If wraps_up is true, commit, write down the "
        "state of the work, and stop.",
    ),
    AgentTool(
        name="context", title="Context of this run", arguments=tools.NoArguments, result=tools.ContextResult, reads=True,
        description="All that is known of this run: its goal, what is done, what is remembered, what is in doubt.",
    ),
    AgentTool(
        name="effects", title="Effects of this run", arguments=tools.EffectsArguments, result=tools.EffectsResult, reads=True,
        description="This run's recorded acts on the outside world, and which of them have an unknown outcome (in_doubt).",
    ),
    AgentTool(
        name="stage", title="Say how far the work is", arguments=tools.StageArguments, result=tools.StageResult,
        description="Say in a word or two how far the work is; your user sees it.",
    ),
    AgentTool(
        name="remember", title="Remember where something is", arguments=tools.RememberArguments, result=tools.RememberResult,
        description="Remember where something is (a file or a URI), for the next start of this work after a crash.",
    ),
    AgentTool(
        name="settle", title="Settle a call of your own", arguments=tools.SettleArguments, result=tools.SettleResult,
        description="Say what became of a call of yours whose outcome is unknown. Only after you looked outside: a wrong "
        "did_not has it done twice. What only a person decides is refused.",
    ),
    AgentTool(
        name="ask", title="Ask your user", arguments=tools.AskArguments, result=tools.AskResult,
        description="Ask a person who is not there now. You are stopped until somebody has answered, and then go on; ask the same "
        "again, and the answer is there. Ask only what you cannot find out or decide.",
    ),
    AgentTool(
        name="save", title="Save the files now", arguments=tools.SaveArguments, result=tools.SaveResult,
        description="Save all files of the workspace now, also what git does not track. Branch, index and stash stay as they are.",
    ),
)  # fmt: skip
BY_NAME = {each.name: each for each in TOOLS}


@functools.cache
def listed(*, has_structure: bool, has_annotations: bool) -> tuple[dict[str, Any], ...]:
    """The list of tools, in an order that stays."""
    return tuple(
        _listed(each, has_structure=has_structure, has_annotations=has_annotations) for each in TOOLS
    )


def _listed(tool: AgentTool, *, has_structure: bool, has_annotations: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tool.name, "description": tool.description, "inputSchema": schema(tool.arguments),
    }  # fmt: skip
    hints = {
        "readOnlyHint": tool.reads, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False,
    }  # fmt: skip
    if has_annotations:
        found["annotations"] = hints
    if has_structure:
        found |= {"title": tool.title, "outputSchema": schema(tool.result)}
    return found


def usage(tool: AgentTool) -> str:
    """What a tool takes, in a line."""
    properties: dict[str, Any] = schema(tool.arguments)["properties"]
    named = [f"{name} ({each.get('description', '')})" for name, each in properties.items()]
    return f"{tool.name} takes {'; '.join(named)}" if named else f"{tool.name} takes no arguments"


def schema(wanted: type[msgspec.Struct]) -> dict[str, Any]:
    """A type as a schema without references, which not every client follows."""
    (top,), parts = msgspec.json.schema_components([wanted], ref_template="{name}")
    found = _whole(top, parts)
    assert isinstance(found, dict), "a Struct is an object"
    return {name: each for name, each in found.items() if name != "description"}


def _whole(part: Any, parts: dict[str, Any]) -> Any:
    """A part of a schema with its references followed, and without titles, which say nothing here."""
    if isinstance(part, list):
        return [_whole(each, parts) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _whole(parts[part["$ref"]], parts)
    found = {
        name: _whole(each, parts)
        for name, each in part.items()
        if not (name == "title" and isinstance(each, str))
    }
    return {"type": "string"} | found if "enum" in found else found  # of our choices all are words
