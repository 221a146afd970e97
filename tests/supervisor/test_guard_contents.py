"""`outlast run --guard`: a call that sends something else than an earlier one is never taken for it, and never ends as it did.

The first attempt makes one call and is killed; the next makes another. Programs such as `fly` note what they are given.
"""

import subprocess
from pathlib import Path

import pytest

from tests.supervisor.guarded_loop import GuardedLoop
from tests.supervisor.host import Host

NOTES = '#!/bin/sh\necho "$@" >> {folder}/world\nfor path do [ ! -f "$path" ] || cat "$path" >> {folder}/world; done\n'


class TwoAttempts:
    """A guarded script of two lines, and the world that it acts on."""

    def __init__(self, host: Host, first: str, second: str, *programs: str) -> None:
        self.loop = GuardedLoop(host)
        for program in programs:
            path = self.loop.folder / "bin" / program
            path.write_text(NOTES.format(folder=self.loop.folder))
            path.chmod(0o755)
        url = "http://witness.test/act/blind/x"
        sent = self.loop.post.replace("-d {} ", "").replace("http://witness.test/act/blind/$item", "")
        assert "witness.test/" not in sent
        text = (
            f"item=x\nif mkdir {self.loop.folder}/once 2>/dev/null; then {first}\nkill -9 $$; fi\n{second}\n"
        )
        self.loop.script.write_text(text.replace("CURL", sent).replace("URL", url))

    def run(self) -> int:
        return self.loop.run("--guard")

    def world(self) -> list[str]:
        path = self.loop.folder / "world"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("program", "first", "second"),
    [
        ("fly", "echo v1 > app.js; fly deploy", "echo v2 > app.js; fly deploy"),
        ("wrangler", "echo v1 > app.js; wrangler deploy", "echo v2 > app.js; wrangler deploy"),
        ("terraform", "echo a > m.tf; terraform apply", "echo b > m.tf; terraform apply"),
        ("kubectl", "echo v1 > d.yaml; kubectl apply -f d.yaml", "echo v2 > d.yaml; kubectl apply -f d.yaml"),
        ("docker", "echo a > Dockerfile; docker push r.test/a", "echo b > Dockerfile; docker push r.test/a"),
        ("rsync", "mkdir d; rsync -a d/ h.test:/x", "touch d/a; rsync -a d/ h.test:/x"),
        ("gh", "echo 1 > a; gh release create v1 -R o/r a", "echo 2 > a; gh release create v1 -R o/r a"),
        ("gh", "gh pr create -R o/r --head h --fill", "gh pr create -R o/r --head h --fill"),
        ("aws", "export AWS_PROFILE=a; aws sns publish --topic-arn t --message m", "AWS_PROFILE=b aws sns publish --topic-arn t --message m"),
    ],
)  # fmt: skip
def test_what_its_words_do_not_hold_is_asked_about_and_not_taken_for_done(
    host: Host, program: str, first: str, second: str
) -> None:
    there = TwoAttempts(host, first, second, program)
    assert there.run() == 3, there.loop.said
    seen = there.world()
    assert "outlast holds this call: it may be effect 1.1 again" in there.loop.said
    [doubt] = there.loop.doubts()
    assert host("settle", "t", doubt["id"], "--did-not", cwd=there.loop.work).code == 0
    assert there.loop.run() == 0, there.loop.said
    assert len(there.world()) >= len(seen) + 1, there.world()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("CURL -H 'X-Amz-Target: A' -d '{}' URL", "CURL -H 'X-Amz-Target: B' -d '{}' URL"),
        ("CURL -X POST --url-query id=1 URL", "CURL -X POST --url-query id=2 URL"),
        ("CURL -d @body URL", """echo '{"n": 2}' > body; CURL -d @body URL"""),
    ],
)
def test_a_request_that_asks_for_something_else_is_made(host: Host, first: str, second: str) -> None:
    there = TwoAttempts(host, f"echo {{}} > body; {first}", second)
    assert there.run() == 0, there.loop.said
    assert there.loop.posted()["x"] == 2, there.loop.said


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("CURL -d '{}' URL", "CURL -u me:a -d '{}' URL"),
        ("CURL -H 'X-Request-Id: 1' -d '{}' URL", "CURL -H 'X-Request-Id: 2' -d '{}' URL"),
    ],
)
def test_a_request_of_somebody_else_or_of_another_try_is_asked_about(
    host: Host, first: str, second: str
) -> None:
    there = TwoAttempts(host, first, second)
    assert there.run() == 3, there.loop.said
    assert there.loop.posted()["x"] == 1
    assert len(there.loop.doubts()) == 1


@pytest.mark.parametrize(
    ("program", "call"),
    [
        ("redis-cli", "redis-cli -h db.test incr a"),
        ("psql", "psql -h db.test -c 'insert 1'"),
        ("scp", "scp a.txt h.test:/x"),
        ("aws", "aws sns publish --topic-arn t --message m"),
    ],
)
def test_what_its_words_hold_is_done_once_and_other_words_are_another_call(
    host: Host, program: str, call: str
) -> None:
    there = TwoAttempts(host, call, f"{call}; cp a.txt b.txt; {call.replace(' a', ' b').replace('insert 1', 'insert 2').replace(' m', ' n')}", program)  # fmt: skip
    assert there.run() == 0, there.loop.said
    named = [line for line in there.world() if line.startswith(("-h", "a.txt", "b.txt", "sns"))]
    assert len(named) == 2, there.world()


# -- pushes ----------------------------------------------------------------------------------------------------------


def head_of(remote: Path) -> str:
    words = ["git", "-C", str(remote), "rev-parse", "main"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def test_a_push_to_another_remote_is_another_push(host: Host) -> None:
    other = host.folder / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", str(other)], check=True, env=host.environ())
    push = "git push -q origin HEAD:main"
    there = TwoAttempts(host, push, f"git remote set-url origin {other}; {push}")
    assert there.run() == 0, there.loop.said
    assert head_of(other) == head_of(host.folder / "remote.git") != ""


@pytest.mark.parametrize("between", ["git push -q origin HEAD:main", "git push -q origin :main"])
def test_commits_that_others_took_the_place_of_are_pushed_again(host: Host, between: str) -> None:
    commit = "echo $RANDOM >> a.txt; git commit -qam x"
    remote = host.folder / "remote.git"
    first = f"git branch old; git push -q origin HEAD:main; {commit}; {between}"
    there = TwoAttempts(host, first, "git reset -q --hard old; git push -qf origin HEAD:main")
    subprocess.run(["git", "-C", str(remote), "config", "receive.denyDeleteCurrent", "ignore"], check=True)
    assert there.run() == 0, there.loop.said
    found = subprocess.run(
        ["git", "-C", str(there.loop.work), "rev-parse", "old"], capture_output=True, text=True
    )
    assert head_of(remote) == found.stdout.strip()


def test_commits_that_are_there_are_not_pushed_again(host: Host) -> None:
    push = "git push -q origin HEAD:main"
    there = TwoAttempts(host, push, push)
    assert there.run() == 0, there.loop.said
    assert "`git` was not run again" in there.loop.said


@pytest.mark.parametrize("between", ["CURL -X PUT -d '{\"n\": 2}' URL", "CURL -X DELETE URL"])
def test_what_another_request_took_the_place_of_is_asked_about(host: Host, between: str) -> None:
    put = "CURL -X PUT -d '{}' URL"
    there = TwoAttempts(host, f"{put}; {between}", put)
    curl = there.loop.folder / "bin" / "curl"
    curl.write_text(NOTES.format(folder=there.loop.folder))
    assert there.run() == 3, there.loop.said
    assert len(there.world()) == 2
    assert "it may be effect 1.1 again" in there.loop.said


def test_several_requests_of_which_one_failed_are_not_taken_for_done(host: Host) -> None:
    call = "CURL -d '{}' 'http://witness.test/{nowhere/x,act/blind/x}'"
    there = TwoAttempts(host, call, call)
    assert there.run() == 3, there.loop.said
    assert there.loop.posted()["x"] == 1
    assert "was not run again" not in there.loop.said


def test_another_spelling_of_an_address_is_the_same_call(host: Host) -> None:
    there = TwoAttempts(
        host, "curl -sf -d a http://192.0.2.2:8777/x", "curl -sf -d a http://3221225986:8777/x"
    )
    curl = there.loop.folder / "bin" / "curl"
    curl.write_text(NOTES.format(folder=there.loop.folder))
    assert there.run() == 0, there.loop.said
    assert len(there.world()) == 1, there.world()
