"""Which package and version a publish command would put on which index, from its words and the project's own file.
The files of `dist/` do not count: the same command line may make them, and a signature must be the same before and after.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from outlast.agents.outward.targets.base import Matched, ReadBack, Target, folder_of, joined
from outlast.agents.outward.targets.hosts import direct, of_url

FILE_MAX = 1 << 20
_DEFAULT_HOSTS = {
    "npm": ("", "registry.npmjs.org", "registry.yarnpkg.com"),
    "pypi": ("", "pypi.org", "upload.pypi.org", "pypi"),
    "cargo": ("", "crates-io", "crates.io"),
    "gem": ("", "rubygems.org"),
}


def resolve(matched: Matched) -> Target | None:
    """`publish INDEX name@version`, with the index's host where it is not the public one."""
    program = matched.call.program
    if program in ("npm", "pnpm", "yarn", "bun"):
        return _npm(matched)
    if program == "cargo":
        return _cargo(matched)
    if program == "gem":
        return _gem(matched)
    return _pypi(matched)


def _publish(
    matched: Matched, index: str, name: str, version: str, registry: str, more: Mapping[str, str],
    others: Sequence[str] = (),
) -> Target:  # fmt: skip
    """`others`: indexes that it may go to instead, by the program's own order of configuration."""
    host = _host(registry)
    version = "*" if matched.bumped else version  # the file still has the old one
    at = "" if host in _DEFAULT_HOSTS[index] else f"at {host}"
    params = {"name": name, "version": version, "registry": _clean(registry), **more}
    readable = not any(mark in name + version for mark in "*?$") and index != "gem"
    probe = ReadBack(index, params) if readable else None
    named = tuple(map(of_url, (registry, *others))) if "://" in registry else ()
    return Target(
        joined("publish", index, f"{name}@{version}", at),
        probe,
        hosts=direct(named, matched.call.environment),
    )


def _host(registry: str) -> str:
    try:
        return urlsplit(registry).netloc.rpartition("@")[2] if "://" in registry else registry
    except ValueError:
        return registry


def _clean(registry: str) -> str:
    return re.sub(r"//[^/@]*@", "//", registry)


# --- npm ------------------------------------------------------------------------------------------------------------


def _npm(matched: Matched) -> Target | None:
    folder = folder_of(matched, "C", "prefix", "dir", "cwd")
    command = [word for word in matched.command if word != "npm"]
    rest = matched.rest
    if command[0] not in ("publish", "pub"):
        reads = command[0] in ("owner", "access", "team", "hook", "org") and command[-1] in (
            "ls",
            "list",
            "get",
        )
        return None if reads else Target(joined(command[0], "npm", *command[1:], *rest[:2]))
    name, version = "*", "*"
    if rest and rest[0].endswith((".tgz", ".tar.gz")):
        name, version = _npm_tarball(os.path.basename(rest[0]))
    else:
        folder = os.path.join(folder, rest[0]) if rest and folder else folder
        package = _json(os.path.join(folder, "package.json")) if folder else {}
        name, version = _text(package, "name", "*"), _text(package, "version", "*")
        if matched.parsed.option("workspace") or matched.parsed.option("filter"):
            name, version = matched.parsed.option("workspace") or matched.parsed.option("filter"), "*"
    registry = matched.parsed.option("registry") or _npm_registry(matched, folder, name)
    access = "yes" if name.startswith("@") else ""
    others = _npm_others(folder, matched.call.environment, name)
    return _publish(matched, "npm", name, version, registry, {"scoped": access}, others)


def _npm_tarball(base: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.+?)-(\d+\.\d+\.\d+.*?)\.(?:tgz|tar\.gz)", base)
    return (match[1], match[2]) if match else (base, "*")


def _npm_registry(matched: Matched, folder: str, name: str) -> str:
    environment = matched.call.environment
    if folder:
        config = _json(os.path.join(folder, "package.json")).get("publishConfig")
        if isinstance(config, dict) and isinstance(config.get("registry"), str):
            return str(config["registry"])
    if given := environment.get("npm_config_registry") or environment.get("NPM_CONFIG_REGISTRY"):
        return given
    scope = name.partition("/")[0] if name.startswith("@") else ""
    for settings in _npmrc(folder, environment):
        if found := (settings.get(f"{scope}:registry") if scope else "") or settings.get("registry"):
            return found
    return ""


def _npm_others(folder: str, environment: Mapping[str, str], name: str) -> list[str]:
    """The registries that go before `--registry`: that of the package's scope, and with some versions `publishConfig`."""
    config = _json(os.path.join(folder, "package.json")).get("publishConfig") if folder else None
    settings = [*_npmrc(folder, environment), *([config] if isinstance(config, dict) else [])]
    has_scope = name.startswith("@") or not re.fullmatch(
        r"[\w.-]+", name
    )  # or it is not known whether it has one
    found = [each.get("registry") for each in settings[-1:] if each is config]
    found += [
        value for each in settings for key, value in each.items() if key.endswith(":registry") and has_scope
    ]
    return [str(value) for value in found if value]


def _npmrc(folder: str, environment: Mapping[str, str]) -> list[dict[str, str]]:
    files = [os.path.join(folder, ".npmrc")] if folder else []
    files += [os.path.join(environment["HOME"], ".npmrc")] if environment.get("HOME") else []
    return [
        dict(line.replace(" ", "").partition("=")[::2] for line in _read(path).splitlines()) for path in files
    ]


# --- PyPI, crates, gems ---------------------------------------------------------------------------------------------

_WHEEL = re.compile(r"([A-Za-z0-9._]+?)-([^-*?]+)-(?:\d[^-]*-)?[^-]+-[^-]+-[^-]+\.whl")
_SDIST = re.compile(r"(.+)-([0-9][^-*?]*?)\.(?:tar\.gz|zip|tar\.bz2)")


def _pypi(matched: Matched) -> Target | None:
    parsed, environment = matched.parsed, matched.call.environment
    folder = folder_of(matched, "directory", "project")
    files = [
        os.path.basename(word)
        for word in matched.rest
        if word.endswith((".whl", ".tar.gz", ".zip", ".tar.bz2"))
    ]
    found = {pair for pair in map(_of_file, files) if pair}
    if len(found) == 1:
        name, version = found.pop()
    else:
        name, version = _pyproject(folder)
    if matched.call.program == "twine":
        registry = parsed.option("repository-url") or environment.get("TWINE_REPOSITORY_URL", "")
        registry = registry or parsed.option("repository") or environment.get("TWINE_REPOSITORY", "")
    else:
        registry = (
            parsed.option("publish-url") or parsed.option("repository-url") or parsed.option("repository")
        )
        registry = registry or parsed.option("index") or environment.get("UV_PUBLISH_URL", "")
    name = re.sub(r"[-_.]+", "-", name).lower()
    listed = "\n".join(matched.rest[:64])
    return _publish(matched, "pypi", name, version, registry, {"folder": folder, "files": listed})


def _of_file(base: str) -> tuple[str, str] | None:
    match = _WHEEL.fullmatch(base) or _SDIST.fullmatch(base)
    return (re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]) if match else None


def _pyproject(folder: str) -> tuple[str, str]:
    data = _toml(os.path.join(folder, "pyproject.toml")) if folder else {}
    project = data.get("project")
    if not isinstance(project, dict):
        tool = data.get("tool")
        project = tool.get("poetry") if isinstance(tool, dict) else None
    if not isinstance(project, dict):
        return os.path.basename(folder) or "*", "*"
    return _text(project, "name", "*"), _text(project, "version", "*")


def _cargo(matched: Matched) -> Target | None:
    manifest = matched.parsed.option("manifest-path")
    folder = folder_of(matched)
    path = os.path.join(folder, manifest or "Cargo.toml") if folder else ""
    package = _toml(path).get("package") if path else None
    package = package if isinstance(package, dict) else {}
    name, version = _text(package, "name", "*"), _text(package, "version", "*")
    if given := matched.parsed.option("package"):
        version = version if given == name else "*"
        name = given
    if matched.command[0] != "publish":
        return Target(
            joined(
                matched.command[0], "cargo", *(matched.rest[:1] or (name,)), matched.parsed.option("version")
            )
        )
    index = matched.parsed.option("registry") or matched.parsed.option("index")
    return _publish(matched, "cargo", name, version, index, {}, [""])  # the index says where to upload


def _gem(matched: Matched) -> Target | None:
    if matched.command[0] != "push":
        return Target(joined(matched.command[0], "gem", *matched.rest[:1], matched.parsed.option("version")))
    base = os.path.basename(matched.rest[0]) if matched.rest else "*"
    match = re.fullmatch(r"(.+)-(\d[^-]*)\.gem", base)
    name, version = (match[1], match[2]) if match else (base, "*")
    return _publish(matched, "gem", name, version, matched.parsed.option("host"), {})


# --- files ----------------------------------------------------------------------------------------------------------


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _parsed(path: str, parse: Callable[[str], object]) -> dict[str, object]:
    try:
        value = parse(_read(path) or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _json(path: str) -> dict[str, object]:
    return _parsed(path, json.loads)


def _toml(path: str) -> dict[str, object]:
    return _parsed(path, tomllib.loads)


def _text(table: Mapping[str, object], key: str, default: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) and value else default
