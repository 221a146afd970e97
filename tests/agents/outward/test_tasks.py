"""Scripts with a name: what `npm run deploy`, `make deploy` and their kind would run is read from the project's files."""

import json
from pathlib import Path

import pytest

from outlast.agents.outward.classify import classify

MAKEFILE = """\
VENV ?= .venv
HOSTS = web1 \\
        web2
.PHONY: all
all: test
test:
\tpytest
upload: test
\t. $(VENV)/bin/activate; twine upload dist/*
deploy-%:
\t@kubectl --context $* apply -f k8s/
ship: upload
\t-$(MAKE) deploy-prod
copy: ; rsync -a dist/ $(firstword $(HOSTS)):/srv
broken:
\techo "unclosed; git push origin x
include more.mk
"""
JUSTFILE = """\
host := "prod"
alias d := deploy
default:
    just --list
build:
    cargo build
deploy to="x": build
    @rsync -a dist/ {{host}}:/srv
    ssh {{to}} systemctl restart x
"""
TASKFILE = """\
version: "3"
tasks:
  build:
    cmds:
      - go build
  deploy:
    desc: git push everything
    deps: [build]
    cmds:
      - helm upgrade --install x ./chart -n {{.NS}}
      - task: tell
  tell: curl -X POST -d hi https://hooks.example.com/x
"""
PACKAGE = {
    "name": "pkg",
    "version": "1.2.3",
    "workspaces": ["packages/*"],
    "scripts": {
        "build": "tsc",
        "stage": "wrangler deploy",
        "add": "wrangler deploy",
        "predeploy": "npm run build",
        "deploy": "wrangler deploy",
        "rel": "npm run build && npm publish",
        "loop": "npm run loop && npm run loop; git push origin x",
        "postversion": "git push origin x",
        "all": "run-s build deploy",
    },
}
PYPROJECT = """\
[project]
name = "app"
version = "1.0"
[tool.poe.tasks]
test = "pytest"
ship = { sequence = ["test", { cmd = "twine upload dist/*" }] }
[tool.pdm.scripts]
deploy = "fly deploy"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "more.mk").write_text("push:\n\tgit push origin x\n")
    (tmp_path / "justfile").write_text(JUSTFILE)
    (tmp_path / "Taskfile.yml").write_text(TASKFILE)
    (tmp_path / "package.json").write_text(json.dumps(PACKAGE))
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    scripts = {"deploy": ["@build", "git push origin x"], "build": "php build.php"}
    (tmp_path / "composer.json").write_text(json.dumps({"scripts": scripts}))
    (tmp_path / "deno.json").write_text(json.dumps({"tasks": {"push": "git push origin x"}}))
    (tmp_path / "mise.toml").write_text('[tasks.push]\nrun = ["true", "git push origin x"]\n')
    inner = tmp_path / "packages/web"
    inner.mkdir(parents=True)
    (inner / "package.json").write_text('{"name": "@o/web", "scripts": {"ship": "netlify deploy --prod"}}')
    return tmp_path


PUSH = "push origin refs/heads/x"
WRANGLER = "wrangler deploy /PROJECT"
NETLIFY = "netlify deploy /PROJECT/packages/web"
UPLOAD = "publish pypi app@1.0"
APPLY = "kubectl apply context=prod filename=k8s/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("npm run deploy", [WRANGLER]),
        ("npm run-script deploy", [WRANGLER]),
        ("npm run deploy -- --env production", ["wrangler deploy environment=production"]),
        ("npm --prefix . run deploy", [WRANGLER]),
        ("cd packages && npm run deploy", [WRANGLER]),
        ("pnpm deploy", [WRANGLER]),
        ("pnpm run deploy", [WRANGLER]),
        ("pnpm stage", [WRANGLER]),
        ("bun stage", [WRANGLER]),
        ("pnpm run add", [WRANGLER]),
        ("pnpm add x", []),
        ("yarn list", []),
        ("npm stage", []),
        ("yarn deploy", [WRANGLER]),
        ("yarn run deploy", [WRANGLER]),
        ("bun run deploy", [WRANGLER]),
        ("corepack yarn deploy", [WRANGLER]),
        ("npm run all", [WRANGLER]),
        ("CI=1 timeout 60 npm run deploy", [WRANGLER]),
        ("bash -c 'npm run deploy'", [WRANGLER]),
        ("npm run rel", ["publish npm pkg@1.2.3"]),
        ("npm version patch", [PUSH]),
        ("npm run loop", [PUSH]),
        ("pnpm --filter @o/web ship", [NETLIFY]),
        ("pnpm --filter web run ship", [NETLIFY]),
        ("npm run ship -w packages/web", []),
        ("npm -w packages/web run ship", [NETLIFY]),
        ("yarn workspace @o/web ship", [NETLIFY]),
        ("turbo run ship", [NETLIFY]),
        ("npx turbo ship", [NETLIFY]),
        ("npm run build", []),
        ("npm run unknown", []),
        ("yarn build", []),
        ("make", []),
        ("make test", []),
        ("make upload", [UPLOAD]),
        ("make -n upload", []),
        ("make -j 4 VENV=v upload", [UPLOAD]),
        ("make push", [PUSH]),
        ("make deploy-prod", [APPLY]),
        ("make ship", [UPLOAD, APPLY]),
        ("cd packages && make -C .. ship", [UPLOAD, APPLY]),
        ("make broken", [PUSH]),
        ("make unknown", []),
        ("just deploy prod", ["rsync prod:/srv", "ssh prod systemctl"]),
        ("just d web", ["rsync prod:/srv", "ssh web systemctl"]),
        ("just", []),
        ("just --dry-run deploy", []),
        ("task deploy", ["POST hooks.example.com/x", "helm upgrade x ./chart namespace=$NS"]),
        ("task build", []),
        ("composer deploy", [PUSH]),
        ("composer run-script deploy", [PUSH]),
        ("deno task push", [PUSH]),
        ("mise run push", [PUSH]),
        ("poe ship", [UPLOAD]),
        ("uv run poe ship", [UPLOAD]),
        ("pdm run deploy", ["fly deploy /PROJECT"]),
        ("git -c alias.up='push origin' up x", [PUSH]),
    ],
)
def test_a_named_script_is_what_it_would_run(text: str, expected: list[str], project: Path) -> None:
    found = [one.signature for one in classify("Bash", {"command": text}, str(project))]
    found = [each.replace(str(project), "/PROJECT") for each in found]
    assert found == expected


def test_an_alias_of_the_repository_is_followed(project: Path) -> None:
    git = project / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[alias]\n\tup = push origin\n\tsend = !git push origin x\n\tself = self x\n")
    for text in ("git up x", "git send"):
        assert [one.signature for one in classify("Bash", {"command": text}, str(project))] == [PUSH], text
    assert classify("Bash", {"command": "git self"}, str(project)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{"scripts": '),
        ("package.json", '{"scripts": {"deploy": 3, "x": null}}'),
        ("package.json", "[]"),
        ("Makefile", "deploy: deploy\n\t$(call a,$(call b,$(c\n\t$(deploy)\nA = $(A)\nx:\n\t$(A)\n"),
        ("justfile", "deploy: deploy\n    {{\n"),
        ("Taskfile.yml", "tasks:\n  deploy:\n   - task: deploy\n"),
        ("composer.json", '{"scripts": {"deploy": "@deploy"}}'),
        ("pyproject.toml", "[tool.poe.tasks]\ndeploy = ['deploy']\n"),
    ],
)
def test_a_file_that_makes_no_sense_starts_nothing_and_ends(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    for call in (
        "npm run deploy",
        "yarn deploy",
        "make deploy x",
        "just deploy",
        "task deploy",
        "composer deploy",
        "poe deploy",
    ):
        assert classify("Bash", {"command": call}, str(tmp_path)) == []


def test_scripts_that_call_each_other_are_read_in_bounded_time(tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(40)]
    scripts = {name: " && ".join(f"npm run {each}" for each in names) for name in names}
    (tmp_path / "package.json").write_text(json.dumps({"scripts": scripts | {"s39": "git push origin x"}}))
    found = classify("Bash", {"command": "npm run s0"}, str(tmp_path))
    assert [one.signature for one in found[:1]] == [PUSH]
