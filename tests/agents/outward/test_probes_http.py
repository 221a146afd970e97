"""Probes against a far side on loopback, whose own memory is the witness: killed at every point they say the truth."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from outlast.agents.outward import probes, rules
from outlast.agents.outward.classify import Outward, classify
from outlast.errors import DidNotHappen
from outlast.probes import CannotTell, Finding, Happened
from tests.agents.outward.far_side import TOKEN, FarSide
from tests.support.environment import need_tool

POINTS = ["never sent", "dropped", "done", "answered"]


@pytest.fixture
def far() -> Iterator[FarSide]:
    with FarSide().serving() as side:
        yield side


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package.json").write_text('{"name": "@s/pkg", "version": "1.2.3"}')
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pkg_py"\nversion = "0.5"\n')
    (tmp_path / "f").write_bytes(b"the body\nof a file\n")
    (tmp_path / "dist").mkdir()
    for name in ("pkg_py-0.5.tar.gz", "pkg_py-0.5-py3-none-any.whl", "pkg_py-0.4.tar.gz"):
        (tmp_path / "dist" / name).write_bytes(b"x")
    return tmp_path


def one(text: str, folder: Path, **environment: str) -> Outward:
    (found,) = classify(
        "Bash", text, str(folder), environment=environment, known=rules.load([rules.LOOPBACK])
    )
    again = msgspec.convert(json.loads(json.dumps(asdict(found))), Outward)  # as it comes back from a store
    assert again == found
    return again


def killed(text: str, far: FarSide, folder: Path, point: str) -> None:
    """Run the command, and kill it with -9 at that point; the far side has made up its mind when this returns."""
    if point == "never sent":
        return
    far.hold("" if point == "answered" else point)
    process = subprocess.Popen(
        ["sh", "-c", text],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if point != "answered":
        assert far.reached.wait(30)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(30) == (0 if point == "answered" else -9)
    far.go_on.set()
    assert far.finished.wait(30)
    far.point = ""


def truth(far: FarSide, before: str) -> type[Finding]:
    return DidNotHappen if far.digest() == before else Happened


def curl(url: str, method: str, body: object) -> str:
    need_tool("curl")
    return f"curl -sS -X {method} {url} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"


ACTS = {
    "comment": ("issues/7/comments", "POST", {"body": "Done in `abc`.\r\n"}),
    "issue": ("issues", "POST", {"title": "A title", "body": "words"}),
    "pr": ("pulls", "POST", {"head": "topic", "base": "main", "title": "t"}),
    "release": ("releases", "POST", {"tag_name": "v1"}),
    "merge": ("pulls/77/merge", "PUT", {}),
    "close": ("issues/66", "PATCH", {"state": "closed"}),
}


@pytest.mark.parametrize("prefix", ["", "/api/v3", "/api/v1"], ids=["GitHub", "GitHub Enterprise", "Gitea"])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("point", POINTS)
def test_an_act_on_a_forge_killed_at_every_point_is_told_truthfully(
    prefix: str, act: str, point: str, far: FarSide, folder: Path
) -> None:
    far.pulls.append(
        {
            "id": 1,
            "number": 77,
            "state": "open",
            "merged": False,
            "head": {"ref": "topic"},
            "created_at": "2020",
        }
    )
    far.issues.append(
        {"id": 2, "number": 66, "state": "open", "title": "A title", "body": "words", "created_at": "2020"}
    )
    far.comments.append({"id": 3, "body": "Done in `abc`.", "created_at": "2999"})  # alike, and there before
    path, method, body = ACTS[act]
    text = curl(f"{far.url}{prefix}/repos/o/r/{path}", method, body)
    outward = one(text, folder)
    recorded = json.loads(json.dumps(probes.facts(outward, {})))
    before = far.digest()
    killed(text, far, folder, point)
    assert isinstance(probes.look(outward, recorded, {}), truth(far, before))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("held", [None, b"something else", b"the body\nof a file\n"])
def test_a_put_killed_at_every_point_is_told_truthfully(
    point: str, held: bytes | None, far: FarSide, folder: Path
) -> None:
    need_tool("curl")
    if held is not None:
        far.files["/d/f"] = held
    for text in (f"curl -sT f {far.url}/d/", f"curl -s -X PUT --data-binary @f {far.url}/d/f"):
        outward = one(text, folder)
        recorded = probes.facts(outward, {})
        before = far.digest()
        killed(text, far, folder, point)
        finding = probes.look(outward, recorded, {})
        # What is there already is as good as put.
        assert isinstance(finding, Happened if held == b"the body\nof a file\n" else truth(far, before)), text
        far.files = {} if held is None else {"/d/f": held}


def test_a_put_of_a_file_that_the_same_line_makes_is_not_taken_for_the_old_one(
    far: FarSide, folder: Path
) -> None:
    need_tool("curl")
    far.files["/f"] = (folder / "f").read_bytes()
    text = f"echo new > f; curl -sT f {far.url}/f"
    outward = one(text, folder)
    recorded = probes.facts(outward, {})
    assert isinstance(probes.look(outward, recorded, {}), DidNotHappen)
    killed(text, far, folder, "done")
    assert isinstance(probes.look(outward, recorded, {}), Happened)
    far.files["/f"] = b"somebody else's"
    assert isinstance(probes.look(outward, recorded, {}), CannotTell)


@pytest.mark.parametrize("point", POINTS)
def test_a_delete_killed_at_every_point_is_told_truthfully(point: str, far: FarSide, folder: Path) -> None:
    need_tool("curl")
    far.files["/x"] = b"1"
    text = f"curl -s -X DELETE {far.url}/x"
    outward = one(text, folder)
    recorded, before = probes.facts(outward, {}), far.digest()
    killed(text, far, folder, point)
    assert isinstance(probes.look(outward, recorded, {}), truth(far, before))


@pytest.mark.parametrize("point", POINTS)
def test_a_package_on_an_npm_index_is_found_whenever_the_publisher_died(
    point: str, far: FarSide, folder: Path
) -> None:
    far.npm["@s/pkg"] = ["1.2.2"]
    outward = one(f"npm publish --registry {far.url}/npm/", folder)
    assert outward.signature == f"publish npm @s/pkg@1.2.3 at {far.host}"
    recorded, before = probes.facts(outward, {}), far.digest()
    killed(curl(f"{far.url}/npm/@s%2fpkg", "PUT", {"versions": {"1.2.3": {}}}), far, folder, point)
    assert isinstance(probes.look(outward, recorded, {}), truth(far, before))


def test_a_private_package_looks_like_a_missing_one(far: FarSide, folder: Path) -> None:
    outward = one(f"npm publish --registry {far.url}/npm/", folder)
    assert isinstance(probes.look(outward, probes.facts(outward, {}), {}), CannotTell)


def test_files_on_a_python_index_are_all_there_or_none_or_cut_off_between(far: FarSide, folder: Path) -> None:
    far.pypi["pkg-py"] = ["pkg_py-0.4.tar.gz"]
    outward = one(f"twine upload --repository-url {far.url}/legacy/ dist/*", folder)
    recorded = probes.facts(outward, {})
    upload = f"curl -s -F content=@dist/{{}} {far.url}/legacy/"
    need_tool("curl")
    for name, expected in (("pkg_py-0.5.tar.gz", CannotTell), ("pkg_py-0.5-py3-none-any.whl", Happened)):
        before = probes.look(outward, recorded, {})
        killed(upload.format(name), far, folder, "dropped")
        assert probes.look(outward, recorded, {}) == before or isinstance(before, DidNotHappen)
        killed(upload.format(name), far, folder, "done")
        assert isinstance(probes.look(outward, recorded, {}), expected)
    again = probes.facts(outward, {})
    assert isinstance(probes.look(outward, again, {}), DidNotHappen), "they were there before"


def test_without_what_was_before_a_like_one_is_not_taken_for_ours(far: FarSide, folder: Path) -> None:
    for act in ("comment", "issue", "pr"):
        path, method, body = ACTS[act]
        text = curl(f"{far.url}/repos/o/r/{path}", method, body)
        outward = one(text, folder)
        assert isinstance(probes.look(outward, {}, {}), DidNotHappen)
        killed(text, far, folder, "done")
        assert isinstance(probes.look(outward, {}, {}), CannotTell)


def test_a_comment_whose_words_are_not_known_is_told_apart_only_when_nothing_is_new(
    far: FarSide, folder: Path
) -> None:
    outward = one(f"curl -X POST {far.url}/repos/o/r/issues/7/comments -d @body.json", folder)
    recorded = probes.facts(outward, {})
    assert isinstance(probes.look(outward, recorded, {}), DidNotHappen)
    far.comments.append({"id": 9, "body": "?", "created_at": "2999"})
    assert isinstance(probes.look(outward, recorded, {}), CannotTell)


def test_a_hidden_mark_is_enough(far: FarSide, folder: Path) -> None:
    text = curl(f"{far.url}/repos/o/r/issues/7/comments", "POST", {"body": "words <!-- outlast:ol1_abc -->"})
    outward = one(text, folder)
    far.comments.append({"id": 9, "body": "edited words <!-- outlast:ol1_abc -->", "created_at": "2999"})
    assert isinstance(probes.look(outward, {}, {}), Happened)


def test_more_than_is_read_is_never_a_did_not(far: FarSide, folder: Path) -> None:
    outward = one(curl(f"{far.url}/repos/o/r/issues/7/comments", "POST", {"body": "x"}), folder)
    recorded = probes.facts(outward, {})
    far.comments = [{"id": n, "body": "noise", "created_at": "2999"} for n in range(300)]
    assert isinstance(probes.look(outward, recorded, {}), CannotTell)
    far.comments[120]["body"] = "x"
    assert isinstance(probes.look(outward, recorded, {}), Happened)


def test_a_token_goes_to_its_own_host_only_and_is_shown_nowhere(far: FarSide, folder: Path) -> None:
    far.private = True
    ours = {"GITHUB_API_URL": far.url, "GH_TOKEN": TOKEN}
    outward = one("gh pr create -R o/r -H topic -t x -b y", folder, **ours)
    recorded = probes.facts(outward, ours)
    finding = probes.look(outward, recorded, ours)
    assert isinstance(finding, DidNotHappen)
    assert f"token {TOKEN}" in far.tokens
    assert TOKEN not in repr([outward, recorded, finding])
    far.tokens.clear()
    foreign = one(curl(f"{far.url}/api/v1/repos/o/r/pulls", "POST", {"head": "topic"}), folder)
    assert isinstance(probes.look(foreign, {}, {"GH_TOKEN": TOKEN, "GITEA_TOKEN": TOKEN}), CannotTell)
    assert set(far.tokens) == {""}
    gitea = {"GITEA_SERVER_URL": far.url, "GITEA_TOKEN": TOKEN}
    assert isinstance(probes.look(foreign, {}, gitea), DidNotHappen)
    by_tea = one("tea pr create --repo o/r --head topic -t x", folder, **gitea)
    assert isinstance(probes.look(by_tea, {}, gitea), DidNotHappen)


def test_a_redirect_to_another_host_is_not_followed(far: FarSide, folder: Path) -> None:
    outward = one(f"curl -s -X PUT -d x {far.url}/a", folder)
    for place in (
        "http://example.invalid/a",
        f"http://localhost:{far.host.partition(':')[2]}/a",
        "file:///etc/passwd",
        far.url,
    ):
        far.redirect = place
        assert probes.facts(outward, {})["before"] is None
        assert isinstance(probes.look(outward, {}, {}), CannotTell)


def test_a_far_side_that_does_not_answer_cannot_tell_in_time(far: FarSide, folder: Path) -> None:
    outward = one("curl -s -X PUT -d x http://127.0.0.1:1/a", folder)
    assert isinstance(probes.look(outward, {}, {}), CannotTell)
    post = one(curl(f"{far.url}/hook", "POST", {}), folder)
    assert probes.probe(post, {}, {}) is None
    assert isinstance(probes.look(post, probes.facts(post, {}), {}), CannotTell)


def test_a_far_side_that_drips_is_cut_off(folder: Path) -> None:
    """A byte now and then keeps every socket timeout happy; the deadline is for the whole."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"X: y\r\n"[:1])
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    outward = one(f"curl -s -X PUT -d x http://127.0.0.1:{listener.getsockname()[1]}/a", folder)
    began = time.monotonic()
    assert isinstance(probes.look(outward, {}, {}, timeout_s=1.0), CannotTell)
    assert time.monotonic() - began < 10
    stop.set()
    thread.join()
    listener.close()
