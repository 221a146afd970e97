"""The API described in OpenAPI 3.1, made from the table it is served by and from the documents' own types."""

import functools
from typing import Any

import msgspec

from outlast._version import __version__
from outlast.web import api, live, query
from outlast.web.api import OPERATIONS, Operation
from outlast.web.http.responses import REASONS, Problem
from outlast.web.query import Param

_REF = "#/components/schemas/{name}"
_PATH_PARAMS: dict[str, tuple[dict[str, Any], str]] = {
    "run": ({"type": "string", "pattern": "^[0-9A-Za-z]{1,40}$"}, "the id of a run"),
    "commit": ({"type": "string", "pattern": "^[0-9a-f]{4,64}$"}, "the commit of a save, or the beginning of its name"),
    "act": ({"type": "string", "enum": list(api.ACTS)}, "what to do"),
}  # fmt: skip
_ALWAYS = (400, 401, 403, 404, 409, 421, 429, 500, 503)
_ABOUT = (
    "The same documents as on the pages of `outlast ui`. Fields are only added. Loopback needs no token; elsewhere it is "
    "the one that `outlast ui` printed."
)


@functools.cache
def document() -> bytes:
    """The whole description."""
    types = [operation.gives for operation in OPERATIONS]
    params = {(param.name, str(param.type)): param for operation in OPERATIONS for param in operation.params}
    params[query.AFTER.name, str(query.AFTER.type)] = query.AFTER
    wanted = [*types, Problem, query.WishBody, live.EventNotice, *(_type(param) for param in params.values())]
    made, components = msgspec.json.schema_components(wanted, ref_template=_REF)
    schemas = dict(zip((str(each) for each in wanted), made, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    paths["/api/events"] = {"get": _events(schemas)}
    paths["/api/openapi.json"] = {"get": _itself(schemas)}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "outlast ui", "version": __version__, "description": _ABOUT},
            "servers": [{"url": "/"}],
            "security": [{}, {"token": []}],
            "tags": [{"name": "runs"}, {"name": "acts"}, {"name": "all"}, {"name": "events"}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _type(param: Param) -> Any:
    kind: Any = param.type
    return list[kind] if param.many else kind


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "tags": [operation.tag],
        "parameters": [
            *_in_path(operation),
            *(_in_query(param, schemas) for param in operation.params),
        ],
        "responses": {
            "200": _answers("the document", schemas[str(operation.gives)]),
            **_problems(schemas, operation.codes),
        },
    }
    if operation.method == "POST":
        described["parameters"].append(
            {
                "name": "Idempotency-Key", "in": "header", "required": False,
                "description": "whatever you like: the same again is not done again",
                "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
            }
        )  # fmt: skip
        body = {"application/json": {"schema": schemas[str(query.WishBody)]}}
        described["requestBody"] = {"required": True, "content": body}
    return described


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.segments if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMS[name][0], "description": _PATH_PARAMS[name][1]}
        for name in names
    ]  # fmt: skip


def _in_query(param: Param, schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": "query",
        "required": False,
        "description": param.about,
        "schema": schemas[str(_type(param))],
    }


def _answers(about: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": about, "content": {kind: {"schema": schema}}}


def _problems(schemas: dict[str, Any], more: tuple[int, ...] = ()) -> dict[str, Any]:
    problem = schemas[str(Problem)]
    return {str(code): _answers(REASONS[code], problem) for code in sorted({*_ALWAYS, *more})}


def _events(schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "listen",
        "summary": "Events as they are committed (server-sent events); the data of each is an `EventNotice`.",
        "description": "First `hello` with the newest number, then each event with its number as `id`.",
        "tags": ["events"],
        "parameters": [
            _in_query(query.AFTER, schemas),
            {
                "name": "Last-Event-ID", "in": "header", "required": False,
                "description": "as a browser sends it when it comes again; goes before `after`",
                "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
            },
        ],
        "responses": {
            "200": _answers("events without end", {"type": "string"}, "text/event-stream"),
            **_problems(schemas),
        },
    }  # fmt: skip


def _itself(schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "describe",
        "summary": "This description.",
        "tags": ["all"],
        "responses": {"200": _answers("OpenAPI 3.1", {"type": "object"}), **_problems(schemas)},
    }
