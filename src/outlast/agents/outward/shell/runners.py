"""Programs that only start another one (`sudo`, `npx`, `uv run`, `docker run`), and the words of the one they start.
Scripts with a name (`npm run deploy`, `make deploy`) are in `tasks.py`.
"""

import os
import re
from collections.abc import Mapping, Sequence

from outlast.agents.outward.shell.parser import Word

AFTER_DASHES = -1  # the command begins after `--`, or after the runner's options where there is none

# Options that take a value, and how many words of its own a wrapper has before the command.
WRAPPERS: Mapping[str, tuple[str, int]] = {
    "sudo": ("-u -g -h -p -C -D -R -T -U -r -t --user --group --host --prompt --chdir --role --type", 0),
    "doas": ("-u -C", 0),
    "env": ("-u -C --unset --chdir", 0),
    "nohup": ("", 0),
    "timeout": ("-k -s --kill-after --signal", 1),
    "time": ("-f -o --format --output", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p --class --classdata", 0),
    "chrt": ("", 1),
    "taskset": ("", 1),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "setsid": ("", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "xargs": (
        "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --replace --max-lines",
        0,
    ),
    "parallel": ("-j -a -I --jobs --arg-file", 0),
    "systemd-run": (
        "-p -u -E -M -H -G -t --unit --property --setenv --uid --gid --nice --working-directory --slice --description "
        "--machine --host --on-active --on-calendar --service-type",
        0,
    ),
    "systemd-inhibit": ("--what --who --why --mode", 0),
    "strace": ("-e -o -p -s -u", 0),
    "ltrace": ("-e -o -p -s -u", 0),
    "unbuffer": ("", 0),
    "chronic": ("", 0),
    "faketime": ("", 1),
    "flock": ("-w -E --timeout", 1),
    "caffeinate": ("-t -w", 0),
    "fakeroot": ("-l -s -i -b", AFTER_DASHES),
    "gosu": ("", 1),
    "su-exec": ("", 1),
    "tini": ("-p -e", AFTER_DASHES),
    "dumb-init": ("-r", AFTER_DASHES),
    "proxychains": ("-f", 0),
    "proxychains4": ("-f", 0),
    "torsocks": ("", 0),
    "setarch": ("", 1),
    "unshare": ("", AFTER_DASHES),
    "retry": ("-t -d -m --times --delay --max --tries", AFTER_DASHES),
    "wait-for-it": ("-h -p -t --timeout --host --port", AFTER_DASHES),
    "busybox": ("", 0),
    "corepack": ("", 0),
    "npx": ("-p -c --package --call", 0),
    "pnpx": ("--package", 0),
    "bunx": ("-p --package", 0),
    "uvx": ("--from --with --with-editable --with-requirements --python -p --index --index-url", 0),
    "pipx run": ("--spec --python --index-url --pip-args", 0),
    "uv run": (
        "--with --with-requirements --python -p --project --directory --extra --group --only-group --env-file --index",
        0,
    ),
    "uv tool run": ("--from --with --python -p --index", 0),
    "poetry run": ("", 0),
    "pdm run": ("-p --project", 0),
    "rye run": ("", 0),
    "hatch run": ("", 0),
    "pipenv run": ("", 0),
    "conda run": ("-n -p --name --prefix --cwd", 0),
    "mamba run": ("-n -p --name --prefix --cwd", 0),
    "micromamba run": ("-n -p --name --prefix --cwd", 0),
    "pixi run": ("-e --environment --manifest-path", 0),
    "bundle exec": ("", 0),
    "gem exec": ("-v -g --version", 0),
    "npm exec": ("-p -c -w --package --call --workspace", 0),
    "npm x": ("-p -c -w --package --call --workspace", 0),
    "pnpm exec": ("-C --dir", 0),
    "pnpm dlx": ("--package", 0),
    "yarn dlx": ("-p --package", 0),
    "yarn exec": ("", 0),
    "bun x": ("-p --package", 0),
    "lerna exec": ("--scope --ignore --concurrency", AFTER_DASHES),
    "go run": ("-C -mod -modfile -tags -ldflags -exec -overlay", 0),
    "go tool": ("", 0),
    "dotnet tool run": ("", 0),
    "deno run": ("--config -c --import-map --lock --env-file", 0),
    "mise exec": ("-C", AFTER_DASHES),
    "mise x": ("-C", AFTER_DASHES),
    "asdf exec": ("", 0),
    "rtx exec": ("", AFTER_DASHES),
    "nvm exec": ("", 1),
    "fnm exec": ("--using", 0),
    "volta run": ("--node --npm --pnpm --yarn", 0),
    "rbenv exec": ("", 0),
    "rustup run": ("", 1),
    "pyenv exec": ("", 0),
    "direnv exec": ("", 1),
    "nix run": ("", 0),
    "devbox run": ("", AFTER_DASHES),
    "dotenv": ("-e -f -c -v -p", AFTER_DASHES),
    "dotenv run": ("-f", 0),
    "dotenvx run": ("-f --env-file -e --env", AFTER_DASHES),
    "env-cmd": ("-f -e --file --environments", 0),
    "cross-env": ("", 0),
    "cross-env-shell": ("", 0),
    "op run": ("--env-file --account", AFTER_DASHES),
    "doppler run": ("-p -c -t --project --config --token", AFTER_DASHES),
    "infisical run": ("--env --path --projectId --token", AFTER_DASHES),
    "teller run": ("-c --config", AFTER_DASHES),
    "chamber exec": ("", AFTER_DASHES),
    "aws-vault exec": ("-d --duration --region", 1),
    "envchain": ("", 1),
    "saml2aws exec": ("-a --idp-account --exec-profile", AFTER_DASHES),
    "sops exec-env": ("", 1),
}  # fmt: skip
# Options with a value that stand between a program and its command.
BEFORE: Mapping[str, str] = {
    "npm": "-C --prefix -w --workspace --registry --userconfig --loglevel",
    "pnpm": "-C --dir -F --filter --filter-prod --registry --loglevel --reporter",
    "yarn": "--cwd --registry",
    "bun": "--cwd --filter -F -c --config --env-file",
    "uv": "--directory --project --config-file --color",
    "poetry": "-C --directory -P --project",
    "pdm": "-p --project",
    "hatch": "-e --env -p --project",
    "docker": "-H --host -c --context --config -l --log-level",
    "podman": "--connection --url --log-level",
    "mise": "-C --cd -E --env",
    "bundle": "--gemfile",
}
_ASSIGNS = frozenset("env sudo doas cross-env cross-env-shell dotenv dotenvx env-cmd".split())
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# Runners that are given a package, maybe with a version, in place of a program.
_FETCHERS = frozenset(
    ["npx", "pnpx", "bunx", "bun x", "npm exec", "npm x", "pnpm dlx", "pnpm exec", "yarn dlx", "yarn exec", "uvx", "uv tool run", "pipx run",
     "gem exec", "go run", "go tool", "deno run", "nix run", "corepack", "bundle exec"]
)  # fmt: skip
# Packages whose program has another name.
_PROGRAMS: Mapping[str, str] = {
    "@changesets/cli": "changeset",
    "@angular/cli": "ng",
    "@vscode/vsce": "vsce",
    "@aws-amplify/cli": "amplify",
    "@sentry/cli": "sentry-cli",
    "@google/clasp": "clasp",
    "@semantic-release/cli": "semantic-release",
    "@jsdevtools/npm-publish": "npm-publish",
    "@cloudflare/wrangler": "wrangler",
    "@release-it/cli": "release-it",
    "@microsoft/rush": "rush",
    "@flydotio/flyctl": "flyctl",
    "@ionic/cloud-cli": "ionic-cloud",
    "@shopify/cli": "shopify",
    "@azure/static-web-apps-cli": "swa",
    "sequelize-cli": "sequelize",
    "aws-cdk": "cdk",
    "firebase-tools": "firebase",
    "netlify-cli": "netlify",
    "vercel-cli": "vercel",
    "eas-cli": "eas",
    "appcenter-cli": "appcenter",
    "code-push-cli": "code-push",
    "web-ext-submit": "web-ext",
    "shadow-cljs": "shadow-cljs",
    "ansible-core": "ansible-playbook",
    "awscli": "aws",
    "aws-cli": "aws",
    "aws-sam-cli": "sam",
    "google-cloud-cli": "gcloud",
    "cloud-sdk": "gcloud",
    "google-cloud-sdk": "gcloud",
    "azure-cli": "az",
    "python-semantic-release": "semantic-release",
    "zest.releaser": "fullrelease",
    "opentofu": "tofu",
    "github-cli": "gh",
    "supabase-cli": "supabase",
}
_VERSION = re.compile(r"(?:@|[=<>~!]=?|\[).*", re.DOTALL)
_MAJOR = re.compile(r"v\d+")


def wrapped(words: Sequence[Word], name: str, variables: dict[str, str]) -> list[Word]:
    """The command that a wrapper would call, empty if this is no wrapper. Assignments of `env` and its kind go into the variables."""
    if name in CONTAINERS and (inside := _in_container(words, name)):
        return inside
    runner, at = _runner(words, name)
    if not runner:
        return []
    values, own = frozenset(WRAPPERS[runner][0].split()), WRAPPERS[runner][1]
    if own == AFTER_DASHES and "--" in words[at:]:
        return _fetched(runner, list(words[list(words).index(Word("--"), at) + 1 :]))
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if name == "command" and words[at][1:2] in ("v", "V"):
            return []
        if words[at] == "--":
            at += 1
            break
        if name == "env" and words[at] in ("-S", "--split-string"):
            return [Word(word) for text in words[at + 1 :] for word in text.split()]
        at += 2 if words[at] in values else 1
    at += max(own, 0)
    if name in _ASSIGNS:
        while at < len(words) and _ASSIGNMENT.match(words[at]):
            key, _, value = words[at].partition("=")
            variables[key] = value
            at += 1
    if at < len(words) and words[at] == "--":
        at += 1
    return _fetched(runner, list(words[at:]))


def _runner(words: Sequence[Word], name: str) -> tuple[str, int]:
    """The longest wrapper that these words begin with, its own options left out, and where its words end."""
    values = frozenset(BEFORE.get(name, "").split())
    wrapper, at, found = name, 1, ("", 0)
    if name in WRAPPERS:
        found = (name, 1)
    for _ in range(2):
        while at < len(words) and words[at].startswith("-") and name in BEFORE:
            at += 2 if words[at] in values else 1
        if at >= len(words):
            break
        wrapper, at = f"{wrapper} {words[at]}", at + 1
        if wrapper in WRAPPERS:
            found = (wrapper, at)
    return found if found[1] < len(words) else ("", 0)


def _fetched(runner: str, words: list[Word]) -> list[Word]:
    """The words with the program's name in place of the package that a runner was given."""
    if words and runner in _FETCHERS:
        words[0] = Word.of(program_of(words[0]), words[0].known)
        if words[1:2] == ["--"]:
            del words[1]
    return words


def program_of(package: str) -> str:
    """The program that a package's name stands for: `wrangler` of `wrangler@3`, `changeset` of `@changesets/cli@2`."""
    if package.startswith((".", "/")):
        return package
    plain = package.removeprefix("npm:").removeprefix("jsr:").rpartition("#")[2]
    if plain.startswith("@"):
        scope, _, name = plain.partition("/")
        name = _VERSION.sub("", name)
        known = _PROGRAMS.get(f"{scope}/{name}")
        return known or (scope[1:] if name == "cli" else _PROGRAMS.get(name, name))
    parts = [part for part in _VERSION.sub("", plain).split("/") if part]
    if len(parts) > 1 and _MAJOR.fullmatch(parts[-1]):
        parts.pop()
    return _PROGRAMS.get(parts[-1], parts[-1]) if parts else package


CONTAINERS = frozenset("docker podman nerdctl docker-compose podman-compose".split())
_INSIDE = ("run", "exec")
CONTAINER_VALUES = frozenset(
    "-e --env -v --volume -w --workdir -u --user -p --publish --name --network --net --entrypoint --mount --env-file -l "
    "--label -h --hostname --platform --add-host --cap-add --cap-drop --device --gpus -m --memory --cpus --pull --restart "
    "--shm-size --tmpfs --ulimit --volumes-from --log-driver --log-opt --cidfile --dns --ip --ipc --pid --security-opt "
    "--index -f --file --profile --project-name --project-directory --context -c -H --host --config".split()
)


def _in_container(words: Sequence[Word], name: str) -> list[Word]:
    """The command that `docker run` or `docker compose exec` starts: the words after the image, or the image's namesake."""
    commands, at, entry = 0, 1, ""
    while at < len(words) and (words[at].startswith("-") or commands < 1):
        word = words[at]
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            if option == "--entrypoint":
                entry = value or (words[at + 1] if at + 1 < len(words) else "")
            at += 1 if equals or option not in CONTAINER_VALUES else 2
        elif word in _INSIDE:
            commands, at = 1, at + 1
        elif word in ("compose", "container"):
            at += 1
        else:
            return []
    if at >= len(words):
        return []
    image, rest = words[at], list(words[at + 1 :])
    if entry:
        return [Word(entry), *rest]
    named = program_of(re.sub(r":[^/]*$", "", image))
    if rest and named in _ENTRY_POINTS:
        return rest if os.path.basename(rest[0]) == named else [Word(named), *rest]
    return rest


# Programs whose images have them as the entry point.
_ENTRY_POINTS = frozenset(
    "aws terraform tofu terragrunt kubectl helm goreleaser flyway liquibase crane skopeo rclone curl ansible-playbook gh "
    "semantic-release doctl wrangler firebase vercel netlify sentry-cli pulumi flyctl oras az twine git".split()
)

# The programs that may start one that reaches outside although its name does not stand in the text.
FETCHERS = frozenset(name.split()[0] for name in _FETCHERS) | CONTAINERS

# Runners that look a program up elsewhere than on the PATH they were given, and the words with which they do. Below them
# no shim is found, so they have one themselves. Those of scripts are in `tasks.py`.
_ALWAYS = frozenset("npx pnpx bunx uvx sudo doas".split())
_ELSEWHERE = frozenset(
    "pipx uv poetry pdm rye hatch pipenv conda mamba micromamba pixi bundle gem npm pnpm yarn bun lerna mise asdf rtx nvm fnm "
    "volta rbenv rustup pyenv direnv nix devbox docker podman nerdctl dotenv corepack go".split()
)
_CLEANED = ("-i", "-", "--ignore-environment", "PATH=*", "-S*", "-i*")  # of env: the PATH may be another one
_NIX = ("-c", "--command", "-c=*", "--command=*")  # of a shell with a PATH of its own


def triggers(program: str) -> tuple[str, ...]:
    """The patterns (of sh) that a shim of this runner looks for among its words; none: it needs no shim."""
    if program in _ALWAYS:
        return ("*",)
    if program == "env":
        return _CLEANED
    if program not in _ELSEWHERE:
        return ()
    inside = _INSIDE if program in CONTAINERS else _NIX if program == "nix" else ()
    return tuple(sorted({name.split()[-1] for name in WRAPPERS if name.split()[0] == program} | set(inside)))


SHIMMED = _ALWAYS | _ELSEWHERE | {"env"}
