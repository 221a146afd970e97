"""What a call brings to its target, as a digest: the same for the same, another for another, none where nobody knows."""

import subprocess
from pathlib import Path

import pytest

from outlast.agents.outward.classify import Outward, classify, classify_argv
from outlast.agents.outward.content import can_differ, compare, is_whole

URL = "https://chat.test/api"


def one(text: str, cwd: Path | None = None) -> Outward:
    [found] = classify("Bash", {"command": text}, str(cwd) if cwd else None)
    return found


SAME = [
    (f"curl -d a=1 {URL}", f"curl -sS --data a=1 --retry 3 {URL}"),
    (f"curl -d a=1 {URL}", f"curl -XPOST {URL} -da=1"),
    (f"curl -d a=1 -d b=2 {URL}", f"curl -d 'a=1&b=2' {URL}"),
    (f"""curl -d '{{"a": 1, "b": 2}}' {URL}""", f"""curl --json '{{"b":2,"a":1}}' {URL}"""),
    (f"curl -H 'Content-Type: a/b' -d a=1 {URL}", f"curl -d a=1 -H 'content-type:  a/b' {URL}"),
    (f"curl -X POST --url-query id=1 {URL}", f"curl -X POST --url-query id=1 -o out {URL}"),
    (f"http POST {URL} id==1 n=2", f"http {URL} n=2 id==1"),
    (f"curl -sSfL -w '%{{http_code}}' -o /dev/null -d a=1 {URL}", f"curl -d a=1 {URL}"),
    ("redis-cli -h db.test incr a", "redis-cli -h db.test incr a"),
    ("psql -h db.test -c 'insert 1'", "psql -h db.test --command 'insert 1'"),
    (f"curl -X DELETE {URL}", f"curl --request DELETE {URL}"),
    (f"http POST {URL} a=1 b=2", f"http {URL} b=2 a=1"),
    (f"wget --post-data=a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"wget --header 'X-Event: a' --post-data=a {URL}", f"wget --post-d=a -e 'header=X-Event: a' {URL}"),
    ("mysql --host=db.test -e 'insert 1'", "mysql --hos=db.test -e 'insert 1'"),
    (f"curl -d a=1 {URL}", f"curl -d @- {URL} <<'END'\na=1\nEND"),
    (f"curl -d a=1 {URL}", f"echo a=1 | curl --data @- {URL}"),
    (f"""curl -d '{{"a": 1}}' {URL}""", f"""curl --json @- {URL} <<END\n{{ "a": 1 }}\nEND"""),
    (f"curl -d a=1 {URL}", f"curl -d \"$(cat <<'END'\na=1\nEND\n)\" {URL}"),
    (f"curl -d a=1 {URL}", f"DATA=a=1; curl -d $DATA {URL}"),
    ("ssh host systemctl restart web", "ssh -p 22 host systemctl restart web"),
]
OTHERS = [
    (f"curl -d a=1 {URL}", f"curl -d a=2 {URL}"),
    (f"curl -d a=1 {URL}?to=x", f"curl -d a=1 {URL}?to=y"),
    (f"curl -F a=1 {URL}", f"curl -F a=2 {URL}"),
    (f"http POST {URL} a=1", f"http POST {URL} a=2"),
    ("gh api graphql -f query='mutation { a(n: 1) }'", "gh api graphql -f query='mutation { a(n: 2) }'"),
    ("ssh host psql -c 'insert 1'", "ssh host psql -c 'insert 2'"),
    ("gh pr comment 7 -R o/r -b one", "gh pr comment 7 -R o/r -b two"),
    (f"curl -H 'X-Amz-Target: A' -d '{{}}' {URL}", f"curl -H 'X-Amz-Target: B' -d '{{}}' {URL}"),
    (f"curl -X POST --url-query id=1 {URL}", f"curl -X POST --url-query id=2 {URL}"),
    (f"wget --header 'X-Event: a' --post-data=a {URL}", f"wget --header='X-Event: b' --post-data=a {URL}"),
    (f"http POST {URL} id==1", f"http POST {URL} id==2"),
    (f"http POST {URL} X-Event:a n=1", f"http POST {URL} X-Event:b n=1"),
    ("gh api -H 'X-Event: a' -f a=b /x", "gh api -H 'X-Event: b' -f a=b /x"),
    ("redis-cli -h db.test incr a", "redis-cli -h db.test incr b"),
    ("psql -h db.test -c 'insert 1'", "psql -h db.test -c 'insert 2'"),
    ("mysql -h db.test -e 'insert 1'", "mysql -h db.test -e 'insert 2'"),
    ("scp a.txt host.test:/x", "scp b.txt host.test:/x"),
    ("rsync -a a.txt host.test:/x", "rsync -a b.txt host.test:/x"),
    ("aws s3 cp a.txt s3://b/k", "aws s3 cp b.txt s3://b/k"),
    ("gh issue edit 7 -R o/r --add-label x", "gh issue edit 7 -R o/r --remove-label x"),
    ("gh pr edit 7 -R o/r --add-label x", "gh pr edit 7 -R o/r --add-label y"),
    ("gh pr merge 7 -R o/r --squash", "gh pr merge 7 -R o/r --merge"),
    ("gh release upload v1 -R o/r a.txt", "gh release upload v1 -R o/r b.txt"),
    ("gh release create v1 -R o/r a.txt", "gh release create v1 -R o/r b.txt"),
    ("gh issue create -R o/r -t a -b b", "gh issue create -R o/r -t a -b b -l c"),
    ("glab api -X POST -f a=1 /x", "glab api -X POST -f a=2 /x"),
    (
        "aws sqs send-message --queue-url q --message-body 1",
        "aws sqs send-message --queue-url q --message-body 2",
    ),
]
# Verb and target are the same, and nobody knows whether the rest is: such a call is asked about, and never taken for done.
UNCLEAR = [
    (f"curl -H 'Authorization: Bearer x' -d a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"curl -u me:a -d a=1 {URL}", f"curl -u you:a -d a=1 {URL}"),
    (f"curl -u me:a -d a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"curl -d a=1 {URL}", f"curl -d a=1 {URL.replace('//', '//me:a@')}"),
    (f"curl -b s=1 -d a=1 {URL}", f"curl -b s=2 -d a=1 {URL}"),
    (f"curl --oauth2-bearer x -d a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"curl -H 'X-Request-Id: 1' -d a=1 {URL}", f"curl -H 'X-Request-Id: 2' -d a=1 {URL}"),
    (f"curl --connect-to ::x -d a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"curl -H 'Authorization: $TOKEN' -d a=1 {URL}", f"curl -H \"Authorization: $TOKEN\" -d a=1 {URL}"),
    (f"http -a me:a POST {URL} a=1", f"http POST {URL} a=1"),
    (f"wget --user me --post-data=a {URL}", f"wget --post-data=a {URL}"),
    (f"curl -d a=1 --next -d a=2 {URL}", f"curl -d a=1 {URL}"),
    ("AWS_PROFILE=a aws sqs send-message --queue-url q --message-body 1", "aws sqs send-message --queue-url q --message-body 1"),
    *((each, each) for each in (
        "fly deploy", "wrangler deploy", "terraform apply", "kubectl apply -f d.yaml", "helm upgrade a b", "docker push r.test/a",
        "scp -r dir host.test:/x", "scp missing host.test:/x", "rsync -a dir/ host.test:/x", "aws s3 sync dir s3://b",
        "aws s3 cp s3://a/b s3://c/d", "scp one.test:/a host.test:/x", "sftp host.test", "gh pr create -R o/r --fill",
        "gh release create v1 -R o/r --generate-notes", "git lfs push origin main", "npm publish", "vercel", "ansible-playbook x.yml",
        "gh issue comment 7 -R o/r -b \"$(date)\"", "gh issue create -R o/r -t a -b \"$(date)\"",
        "cat ids | xargs -n1 curl -d a=1 https://chat.test", "cat ids | xargs -I{} curl -d {} https://chat.test",
        "find . -exec curl -d {} https://chat.test ';'",
    )),
]  # fmt: skip
UNKNOWN = [
    f"curl -d @- {URL}",
    f'curl -d "$(date)" {URL}',
    f"curl -d a=1 {URL}?at=$(date)",
    f"curl -d @missing {URL}",
    f"curl -K options {URL}",
    f"curl -T - {URL}",
    f"date | curl -d @- {URL}",
    f"echo a=1 | tr a b | curl -d @- {URL}",
    f"echo -n a=1 | curl -d @- {URL}",
    f"curl -d @- {URL} <<END\n$(date)\nEND",
    f"curl -d @- {URL} <body",
    f"curl -F file=@missing {URL}",
    f"curl --data-urlencode a@missing {URL}",
    f"date | http POST {URL}",
    "echo insert | ssh host psql",
    "git push origin main",
]


@pytest.mark.parametrize(("first", "again"), SAME)
def test_the_same_content_is_the_same_however_it_is_written(first: str, again: str, tmp_path: Path) -> None:
    assert one(first, tmp_path).signature == one(again, tmp_path).signature
    assert compare(one(first, tmp_path).content, one(again, tmp_path).content) == "same"


@pytest.mark.parametrize(("first", "again"), UNCLEAR)
def test_what_is_not_known_to_be_the_same_is_never_taken_for_it(
    first: str, again: str, tmp_path: Path
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "d.yaml").write_text("a")
    assert one(first, tmp_path).signature == one(again, tmp_path).signature
    assert compare(one(first, tmp_path).content, one(again, tmp_path).content) == "unclear"


@pytest.mark.parametrize(("first", "again"), OTHERS)
def test_another_content_for_the_same_target_is_told_apart(first: str, again: str, tmp_path: Path) -> None:
    assert one(first, tmp_path).signature == one(again, tmp_path).signature
    assert compare(one(first, tmp_path).content, one(again, tmp_path).content) == "another"


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_known_before_it_runs_is_compared_with_nothing(text: str, tmp_path: Path) -> None:
    found = one(text, tmp_path).content
    assert not is_whole(found)
    assert not can_differ(found)


FILED = [
    "kubectl apply -f body",
    "psql -h db.test -f body",
    "psql -h db.test -fbody",
    "redis-cli -h db.test -x set a ./body",
    "scp body host.test:/x",
    "rsync body host.test:/x",
    "aws s3 cp body s3://b/k",
    "aws lambda invoke --function-name f --payload file://body out",
    "gh release upload v1 -R o/r body",
    "gh release create v1 -R o/r body",
    "gh issue comment 7 -R o/r -F body",
    "gh secret set A -f body",
    "glab api -X POST --input body /x",
    "mutt -a body -- a@b.test",
    f"curl -F f=@body {URL}",
    f"curl -H @body -d a=1 {URL}",
    f"http POST {URL} f@body",
]


@pytest.mark.parametrize("text", FILED)
def test_what_lies_in_a_file_that_the_words_name_is_part_of_the_content(text: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text("one")
    first = one(text, tmp_path).content
    body.write_text("two")
    wanted = "unclear" if "-H @" in text else "another"  # there may be credentials in it
    assert compare(first, one(text, tmp_path).content) == wanted
    assert compare(first, one(f"cp other body; {text}", tmp_path).content) == "unclear"


def test_a_body_in_a_file_is_what_lies_there_unless_the_same_text_may_change_it(tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"a": 1}\n')
    sent = f"curl -d @body.json {URL}"
    assert one(sent, tmp_path).content == one(f"""curl -d '{{"a":1}}' {URL}""", tmp_path).content != ""
    assert not can_differ(one(f"cp other.json body.json; {sent}", tmp_path).content)
    assert not can_differ(one(f"cd elsewhere && {sent}", tmp_path).content)
    before = one(sent, tmp_path).content
    body.write_text('{"a": 2}\n')
    assert one(sent, tmp_path).content != before


def test_what_comes_through_the_input_is_the_body_where_the_program_reads_it(tmp_path: Path) -> None:
    def sent(text: str, *words: str) -> str:
        [seen] = classify_argv(words, str(tmp_path), fed=True, sent=text)
        return seen.content

    words = ("curl", "--data-binary", "@-", URL)
    assert "" != sent("a", *words) != sent("b", *words) != ""
    assert sent('{"a": 1}', *words) == one(f"""curl -d '{{"a":1}}' {URL}""", tmp_path).content
    assert sent("a", "curl", "-d", "x", URL) == sent("b", "curl", "-d", "x", URL)
    comment = ("gh", "issue", "comment", "7", "-R", "o/r", "--body-file")
    (tmp_path / "notes.md").write_text("a")
    assert sent("a", *comment, "-") == sent("", *comment, "notes.md") != sent("b", *comment, "-")
    assert sent("", *comment, "notes.md") == one("gh issue comment 7 -R o/r -b a", tmp_path).content != ""
    assert not is_whole(sent("", *comment, "missing.md"))
    encoded = ("curl", "--data-urlencode")
    assert (
        ""
        != sent("a", *encoded, "t@-", URL)
        == sent("", *encoded, "t@notes.md", URL)
        != sent("b", *encoded, "t@-", URL)
    )


def test_a_pipe_in_the_place_of_a_body_is_not_waited_for(tmp_path: Path) -> None:
    subprocess.run(["mkfifo", str(tmp_path / "body")], check=True)
    assert not can_differ(one(f"curl -d @body {URL}", tmp_path).content)


def test_a_shim_and_a_hook_name_the_same_content(tmp_path: Path) -> None:
    text = f"curl -sS -d 'a=1 2' {URL}"
    [seen] = classify_argv(["curl", "-sS", "-d", "a=1 2", URL], str(tmp_path))
    assert seen.content == one(text, tmp_path).content != ""


def test_a_push_is_known_by_its_commits(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        known = ["-c", "user.name=u", "-c", "user.email=u@u"]
        subprocess.run(["git", *known, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "one")
    first = one("git push origin main", tmp_path).content
    assert first == one("git push -u origin HEAD", tmp_path).content != ""
    git("pack-refs", "--all")
    assert one("git push origin main", tmp_path).content == first
    git("commit", "--allow-empty", "-m", "two")
    second = one("git push origin main", tmp_path).content
    assert "" != second != first
    assert not can_differ(one("git push origin main~1:refs/heads/main", tmp_path).content)
    assert not can_differ(one("git commit -am x && git push origin main", tmp_path).content)
    assert not can_differ(one("git push --all origin", tmp_path).content)
    git("tag", "-a", "v1", "-m", "v1")
    assert is_whole(one("git push origin v1", tmp_path).content)
    assert is_whole(one("git push origin :gone", tmp_path).content)


def test_a_push_is_known_by_where_its_remote_lies(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        known = ["-c", "user.name=u", "-c", "user.email=u@u"]
        subprocess.run(["git", *known, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "one")
    git("remote", "add", "origin", "/a.git")
    (tmp_path / ".git/more").write_text('[remote "origin"]\n\tpushurl = /g.git\n')
    contents = [one("git push origin main", tmp_path).content]
    assert compare(contents[0], one("git push", tmp_path).content) == "same"
    for changed in (
        ["remote", "set-url", "origin", "/b.git"],
        ["remote", "set-url", "--push", "origin", "/c.git"],
        ["remote", "set-url", "--add", "--push", "origin", "/d.git"],
        ["config", "url./e/.pushInsteadOf", "/c"],
        ["config", "include.path", "more"],
    ):
        git(*changed)
        contents.append(one("git push origin main", tmp_path).content)
    contents.append(one("git -c remote.origin.pushurl=/f.git push origin main", tmp_path).content)
    given = "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.pushurl GIT_CONFIG_VALUE_0=/f.git"
    contents.append(one(f"{given} git push origin main", tmp_path).content)
    git("config", "remote.origin.pushurl", "/h.git", "/d.git")
    contents.append(one(f"{given} git push origin main", tmp_path).content)
    git("config", "core.pager", "less")  # stands before the remotes
    assert compare(contents[-1], one(f"{given} git push origin main", tmp_path).content) == "same"
    for at, content in enumerate(contents):
        assert all(compare(content, other) == "another" for other in contents[at + 1 :])
    assert one("git remote set-url origin /x.git; git push origin main", tmp_path).content
    assert not is_whole(one("git remote set-url origin /x.git; git push origin main", tmp_path).content)


def test_a_tool_of_a_server_is_known_by_all_that_it_is_given() -> None:
    def given(text: str) -> Outward:
        [found] = classify("mcp__chat__post_message", {"channel": "c", "text": text}, "/")
        return found

    assert given("a").signature == given("b").signature
    assert given("a") == given("a")
    assert given("a").content != given("b").content
    assert given("a").another == "named"


@pytest.mark.parametrize(
    ("text", "another"),
    [
        (f"curl -d a {URL}", "named"),
        ('curl -d \'{"body": "x"}\' https://api.github.com/repos/o/r/issues/7/comments', "held"),
        ("gh pr comment 7 -R o/r -b one", "held"),
        ("gh api graphql -f query='mutation { a(n: 1) }'", "named"),
        ("npm publish", "held"),
        ("git push origin main", "free"),
        ("ssh host reboot", "named"),
        ("terraform apply", "held"),
    ],
)
def test_what_another_content_is_depends_on_what_the_target_names(text: str, another: str) -> None:
    assert one(text, Path("/")).another == another


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("http://3221225986:8777/x", "http://192.0.2.2:8777/x"),
        ("http://0xC0.0.2.2:8777/x", "http://192.0.2.2:8777/x"),
        ("http://192.0.514:8777/x", "http://192.0.2.2:8777/x"),
        ("http://[::ffff:192.0.2.2]:8777/x", "http://192.0.2.2:8777/x"),
        ("http://[2001:DB8:0:0::1]/x", "http://[2001:db8::1]/x"),
        ("http://Chat.test./x", "http://chat.test/x"),
        ("http://chat%2Etest/x", "http://chat.test/x"),
        ("http://chat.test/{x}", "http://chat.test/x"),
        ("http://chat.test/[1-1]", "http://chat.test/1"),
        ("http://{chat}.test/x", "http://chat.test/x"),
    ],
)
def test_an_address_is_the_same_however_it_is_spelled(spelling: str, plain: str, tmp_path: Path) -> None:
    found, wanted = one(f"curl -fd a '{spelling}'", tmp_path), one(f"curl -fd a {plain}", tmp_path)
    assert found.signature == wanted.signature
    assert compare(found.content, wanted.content) == "same"
    assert found.sure


@pytest.mark.parametrize(
    "words",
    [
        "-d a 'http://chat.test/{fail,ok}'",
        "-d a 'http://chat.test/[1-3]'",
        "-d a 'http://chat.test/[a-c:2]'",
        "-d a 'http://chat.test/[001-100]'",
        "-d a 'http://{a,b}.test/{c,d}'",
        "-d a --url 'http://chat.test/{fail,ok}'",
        '-d a "http://$HERE/{fail,ok}"',
        "-T '{a,b}' http://chat.test/",
        "-d a http://chat.test/a --next -d b http://chat.test/b",
    ],
)
def test_several_requests_of_one_curl_are_not_sure_by_its_exit_code(words: str, tmp_path: Path) -> None:
    assert not one(f"curl -sf {words}", tmp_path).sure


def test_globs_are_opened_as_curl_does_and_not_where_they_are_off(tmp_path: Path) -> None:
    assert one("curl -d a 'http://h.test/{a,b}[1-2]'", tmp_path).signature == (
        "POST h.test/a1 h.test/a2 h.test/b1 h.test/b2"
    )
    for off in ("-g", "-sfg", "--globoff"):
        assert one(f"curl -f {off} -d a 'http://h.test/{{a,b}}'", tmp_path).sure
    early = "curl -f --fail-early -d a http://h.test/a http://h.test/b"
    assert one(early, tmp_path).sure
    assert is_whole(one(early, tmp_path).content)
    assert not one("curl -f -dg 'http://h.test/{a,b}'", tmp_path).sure


def test_the_users_own_file_of_curls_options_is_part_of_what_is_sent(tmp_path: Path) -> None:
    def sent(*words: str) -> str:
        [found] = classify_argv(["curl", *words, "-d", "a", URL], "/", environment={"HOME": str(tmp_path)})
        return found.content

    plain = sent()
    (tmp_path / ".curlrc").write_text("user = me:a")
    mine = sent()
    (tmp_path / ".curlrc").write_text("user = you:a")
    assert compare(plain, mine) == compare(mine, sent()) == "unclear"
    assert compare(plain, sent("-q")) == "same"
