"""Which registry an image or a chart would be pushed to, as far as its name says so."""

from dataclasses import replace

from outlast.agents.outward.targets import base, hosts
from outlast.agents.outward.targets.base import Matched, Target

# Another machine's daemon: its localhost is not ours.
ELSEWHERE = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINER_CONNECTION", "BUILDX_BUILDER")
_OPTIONS = ("host", "context", "connection", "url", "builder", "output", "cache-to")
_FLAGS = frozenset(["-r", "--remote"])
_LAST_WORD = {
    "push": ("docker", "podman", "buildah", "nerdctl", "crane", "helm"),
    "copy": ("skopeo", "crane"),
}  # the verb, and the programs whose last word is then the place


def resolve(matched: Matched) -> Target:
    """The target by its words, as `base.words`, with the registries that the image names contain."""
    return replace(base.words(matched), hosts=_hosts(matched))


def _hosts(matched: Matched) -> tuple[str, ...]:
    call, parsed = matched.call, matched.parsed
    given = [*(call.environment.get(name, "") for name in ELSEWHERE), *map(parsed.option, _OPTIONS)]
    if parsed.flags & _FLAGS or any(value and not value.startswith("unix://") for value in given):
        return ()  # `--output` too: its value may name a registry of its own
    if "--push" in parsed.flags and matched.command[-1] == "build":
        named = parsed.options.get("tag", ())
    else:
        named = matched.rest[-1:] if call.program in _LAST_WORD.get(matched.command[-1], ()) else ()
    return hosts.direct(tuple(map(hosts.of_image, named)), call.environment)
