"""Which calls go to this machine itself: by their words alone, and only where nothing leads elsewhere."""

import json
from pathlib import Path

import pytest

from outlast.agents.outward import rules
from outlast.agents.outward.classify import classify
from outlast.agents.outward.targets.hosts import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("LOCALHOST.", True), ("api.localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
        ("[::1]", True), ("::1%lo", True), ("0:0:0:0:0:0:0:1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", True), ("::", True),
        ("127.1", True), ("0x7f.1", True), ("2130706433", True), ("017700000001", True), ("0", True),
        ("localhost.example.com", False), ("127.0.0.1.example.com", False), ("128.0.0.1", False), ("10.0.0.1", False), ("", False),
        ("mylocalhost", False), ("localhost%2ehost.test", False), ("0127.0.0.1", False), ("127.0.0.999", False), ("127.0.0.08", False),
        ("127.0.0.0.1", False), ("127.٠.0.1", False), ("::2", False), ("fe80::1", False), ("::ffff:10.0.0.1", False),
        ("host.docker.internal", False),
    ],
)  # fmt: skip
def test_which_hosts_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def counted(text: str, folder: Path, **environment: str) -> int:
    return len(classify("Bash", {"command": text}, str(folder), environment=environment))


PUBLISH = "npm publish --registry http://localhost:4873"


def test_a_publish_counts_where_the_project_may_send_it_elsewhere(tmp_path: Path) -> None:
    """npm takes the registry of a package's scope before `--registry`, older ones also `publishConfig`."""
    package, npmrc = tmp_path / "package.json", tmp_path / ".npmrc"
    package.write_text(json.dumps({"name": "@o/pkg", "version": "1.0.0"}))
    assert counted(PUBLISH, tmp_path) == 0
    npmrc.write_text("registry=https://registry.npmjs.org/\n@o:registry=http://[::1]:4873/\n")
    assert counted(PUBLISH, tmp_path) == 0
    npmrc.write_text("@o:registry=https://npm.host.test/\n")
    assert counted(PUBLISH, tmp_path) == 1
    package.write_text(json.dumps({"name": "pkg", "version": "1.0.0"}))
    assert counted(PUBLISH, tmp_path) == 0
    config = {"registry": "https://npm.host.test/"}
    package.write_text(json.dumps({"name": "pkg", "version": "1.0.0", "publishConfig": config}))
    assert counted(PUBLISH, tmp_path) == 1


@pytest.mark.parametrize(
    ("rc", "words", "count"),
    [
        ('proxy = "http://proxy:3128"', "curl", 1),
        ("# mine\n-x proxy:3128", "curl", 1),
        ("--location", "curl", 1),
        ('proxy = "http://proxy:3128"', "curl -q", 0),
        ("silent\nuser-agent = proxy", "curl", 0),
    ],
)
def test_a_file_of_options_that_leads_curl_elsewhere_counts(
    rc: str, words: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / ".curlrc").write_text(rc)
    assert counted(f"{words} -d x http://localhost:3000/x", tmp_path, HOME=str(tmp_path)) == count
    assert counted(f"{words} -d x http://localhost:3000/x", tmp_path, CURL_HOME=str(tmp_path)) == count


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_what_a_proxy_of_the_environment_takes_counts(name: str, tmp_path: Path) -> None:
    text = "curl -d x http://localhost:3000/x"
    proxy = {name: "http://proxy:3128"}
    assert counted(text, tmp_path, **proxy) == 1
    assert counted(text, tmp_path, **proxy, NO_PROXY="127.0.0.1, localhost") == 0
    assert counted(text, tmp_path, **proxy, no_proxy="127.0.0.1") == 1
    assert counted(PUBLISH, tmp_path, **proxy) == 1


def test_of_a_text_that_is_not_understood_calls_to_this_machine_count(tmp_path: Path) -> None:
    """Its words are guessed: another address may stand among those that were not seen."""
    (one,) = classify("Bash", {"command": "curl -d x http://localhost/a 'unclosed"}, str(tmp_path))
    assert not one.parsed


@pytest.mark.parametrize(
    "text",
    ["psql -h localhost -f schema.sql", "flyway -url=jdbc:postgresql://127.0.0.1/x migrate", "docker push localhost:5000/x"],
)  # fmt: skip
def test_at_the_end_of_a_tunnel_every_kind_of_call_counts(text: str, tmp_path: Path) -> None:
    tunnelled = rules.load([rules.LOOPBACK])
    assert counted(text, tmp_path) == 0
    assert len(classify("Bash", {"command": text}, str(tmp_path), known=tunnelled)) == 1
    for here in ("psql -h /run/postgresql -f x.sql", "flyway -url=jdbc:sqlite:app.db migrate"):
        assert not classify("Bash", {"command": here}, str(tmp_path), known=tunnelled)
