"""The parameters of queries: names, types and limits in one table, which reads, refuses and describes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from outlast import decoders
from outlast.core import events as ev
from outlast.core.state import Status
from outlast.core.text import did_you_mean
from outlast.dashboard.documents import Against, Ask, Sort, Wish
from outlast.dashboard.report import Kind
from outlast.web.http.responses import Refused

NUMBER_MAX = 2**53 - 1  # the largest that every reader of JSON keeps whole
SIZE_MAX = 500
DAYS_MAX = 60
TEXT_MAX = 1000

_ONE_LINE = "^[^\\u0000-\\u001f\\u007f]*$"
Text = Annotated[str, Meta(max_length=TEXT_MAX, pattern=_ONE_LINE)]
Lines = Annotated[str, Meta(max_length=60_000, pattern="^[^\\u0000]*$")]
Number = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Flag = Annotated[str, Meta(pattern="^[01]$")]


@dataclass(frozen=True, slots=True)
class Param:
    """A field of a query. `many`: it may be there several times."""

    name: str
    type: Any
    about: str
    many: bool = False


OVERVIEW = (
    Param("q", Text, "words that all must occur in a run's task, goal, project, agent, model, reason or id"),
    Param("what", Kind, "only runs under these headings", many=True),
    Param("status", Status, "only runs with these statuses", many=True),
    Param("project", Text, "only runs of this project"),
    Param("agent", Text, "only runs of this agent"),
    Param("sort", Sort, "the order of the runs"),
    Param("up", Flag, "1 turns the order around"),
    Param("flat", Flag, "1 lists every run by itself, not grouped by project and root"),
    Param("page", Annotated[int, Meta(ge=1, le=1_000_000)], "which page, from 1"),
    Param("size", Annotated[int, Meta(ge=1, le=SIZE_MAX)], "how many runs a page has"),
)
BEFORE = Param("before", Number, "only what stands before this one: the `before` of the page before")
PAGE = Param("page", Annotated[int, Meta(ge=1, le=1_000_000)], "which page, from 1")
CAUSE = Param("cause", Text, "only saves of this cause")
AGAINST = Param("against", Against, "compare with the save before, or with HEAD")
ATTEMPT = Param("attempt", Number, "of which attempt; without it the newest")
ZONE = Param(
    "zone",
    Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_+/-]{0,80}$")],
    "IANA name of the zone whose days are meant",
)
DAYS = Param("days", Annotated[int, Meta(ge=1, le=DAYS_MAX)], "how many days")
AFTER = Param(
    "after",
    Annotated[int, Meta(ge=0, le=NUMBER_MAX)],
    "the events after this one; without it those from now on",
)

WISH = (
    Param("amounts", Text, "of budget: what to add, as +200k or usd=+2"),
    Param("limit_was", Text, "of budget: the limit that was seen; refused if it is another by now"),
    Param("effect", Text, "of settle: which effect"),
    Param("finding", ev.Finding, "of settle: what became of it"),
    Param("result", Lines, "of settle: its result as JSON"),
    Param("beat", Annotated[int, Meta(ge=0, le=NUMBER_MAX)], "of fork: after which beat"),
    Param("task", Text, "of fork: the new run's task"),
    Param("save", Text, "of restore: which save"),
    Param("folder", Text, "of restore: the new folder"),
    Param("question", Text, "of approve, reject and answer: which question; empty for the only one"),
    Param("text", Lines, "of answer: the answer; of reject: the reason"),
)  # fmt: skip


def read(
    params: Sequence[Param], fields: Iterable[tuple[str, str]], *, strict: bool = True
) -> dict[str, Any]:
    """The fields by name, converted. Raises Refused with 400.

    A page is not `strict`: a plain form sends its empty fields too, and an address may carry what others put on it.
    """
    known = {param.name: param for param in params}
    given: dict[str, list[str]] = {}
    for name, value in fields:
        if name not in known:
            if strict:
                raise _unknown(name, known)
        elif value or strict:
            given.setdefault(name, []).append(value)
    return {name: _converted(known[name], values) for name, values in given.items()}


def _converted(param: Param, values: list[str]) -> Any:
    kind: Any = param.type
    wanted: Any = tuple[kind, ...] if param.many else kind
    if len(values) > 1 and not param.many:
        raise Refused(400, f"{param.name} is given {len(values)} times", "give it once")
    if _is_whole(kind) and re.fullmatch("-?[0-9]{1,20}", values[0]) is None:
        raise Refused(
            400, f"{param.name}={values[0]!r:.60} is not valid: expected a whole number", param.about
        )
    try:
        # The text itself first, so that a word like `null` is a text where texts are wanted.
        value = tuple(values) if param.many else values[0]
        return decoders.convert(value, wanted, strict=False)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        raise Refused(
            400,
            f"{param.name}={values[-1]!r:.60} is not a valid value: {reason[:200]}",
            f"{_meant(values[-1], kind)}{param.about}{choices(kind)}",
        ) from error


def _meant(value: str, kind: Any) -> str:
    """The nearest of the words that may be given, for the beginning of a hint."""
    near = did_you_mean(value, get_args(kind)) if get_origin(kind) is Literal else ""
    return f"{near} " if near else ""


def _is_whole(kind: Any) -> bool:
    """Whether a whole number is wanted, which is written in digits alone."""
    return kind is int or (get_origin(kind) is Annotated and get_args(kind)[0] is int)


def choices(kind: Any) -> str:
    """The words that may be given, for the end of a hint; nothing where there is no such list."""
    return f"; one of: {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""


def document_hint(error: str) -> str:
    """The hint for a wrong posted document: the values that it may have."""
    named = {param.name: param for param in WISH}
    found = named.get(error.rpartition("$.")[2].rstrip("`"))
    return (
        f"{found.name}: {found.about}{choices(found.type)}" if found is not None else "see /api/openapi.json"
    )


def _unknown(name: str, known: Mapping[str, Param]) -> Refused:
    listed = f"known: {', '.join(known)}" if known else "there are no parameters here"
    return Refused(400, f"no such parameter: {name:.60}", did_you_mean(name, known, listed))


def ask(values: Mapping[str, Any]) -> Ask:
    """Read a query of the overview."""
    fields = {name: values[name] for name in values if name not in ("up", "flat")}
    return Ask(**fields, up=values.get("up") == "1", grouped=values.get("flat") != "1")


def _body_fields() -> list[tuple[str, Any, Any]]:
    limits = {param.name: param.type for param in WISH}
    return [
        (
            field.name,
            limits[field.name] | None if field.default is None else limits[field.name],
            field.default,
        )
        for field in msgspec.structs.fields(Wish)
        if field.name not in ("act", "run")
    ]


# What is posted to the API: a wish whose act and run are in the address.
WishBody: Any = msgspec.defstruct(
    "WishBody",
    _body_fields(),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    module=__name__,
)
WishBody.__doc__ = "The act to carry out; its name and the run are in the address."
