"""What a call brings to its target, as a digest: the same for the same, another for another, none where nobody knows."""

import subprocess
from pathlib import Path

import pytest

from outlast.agents.outward.classify import Outward, classify, classify_argv

URL = "https://chat.test/api"


def one(text: str, cwd: Path | None = None) -> Outward:
    [found] = classify("Bash", {"command": text}, str(cwd) if cwd else None)
    return found


SAME = [
    (f"curl -d a=1 {URL}", f"curl -sS --data a=1 --retry 3 {URL}"),
    (f"curl -d a=1 {URL}", f"curl -XPOST {URL} -da=1"),
    (f"curl -d a=1 -d b=2 {URL}", f"curl -d 'a=1&b=2' {URL}"),
    (f"""curl -d '{{"a": 1, "b": 2}}' {URL}""", f"""curl --json '{{"b":2,"a":1}}' {URL}"""),
    (f"curl -H 'Authorization: Bearer x' -d a=1 {URL}", f"curl -d a=1 {URL}"),
    (f"curl -X DELETE {URL}", f"curl --request DELETE {URL}"),
    (f"http POST {URL} a=1 b=2", f"http {URL} b=2 a=1"),
    (f"wget --post-data=a=1 {URL}", f"curl -d a=1 {URL}"),
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
    (
        "aws sqs send-message --queue-url q --message-body 1",
        "aws sqs send-message --queue-url q --message-body 2",
    ),
]
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
    assert one(first, tmp_path).content == one(again, tmp_path).content != ""


@pytest.mark.parametrize(("first", "again"), OTHERS)
def test_another_content_for_the_same_target_is_told_apart(first: str, again: str, tmp_path: Path) -> None:
    assert one(first, tmp_path).signature == one(again, tmp_path).signature
    assert "" != one(first, tmp_path).content != one(again, tmp_path).content != ""


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_is_not_known_before_it_runs_has_no_content(text: str, tmp_path: Path) -> None:
    assert one(text, tmp_path).content == ""


def test_a_body_in_a_file_is_what_lies_there_unless_the_same_text_may_change_it(tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"a": 1}\n')
    sent = f"curl -d @body.json {URL}"
    assert one(sent, tmp_path).content == one(f"""curl -d '{{"a":1}}' {URL}""", tmp_path).content != ""
    assert one(f"cp other.json body.json; {sent}", tmp_path).content == ""
    assert one(f"cd elsewhere && {sent}", tmp_path).content == ""
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
    assert sent("", *comment, "missing.md") == ""
    encoded = ("curl", "--data-urlencode")
    assert (
        ""
        != sent("a", *encoded, "t@-", URL)
        == sent("", *encoded, "t@notes.md", URL)
        != sent("b", *encoded, "t@-", URL)
    )


def test_a_pipe_in_the_place_of_a_body_is_not_waited_for(tmp_path: Path) -> None:
    subprocess.run(["mkfifo", str(tmp_path / "body")], check=True)
    assert one(f"curl -d @body {URL}", tmp_path).content == ""


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
    assert one("git push origin main~1:refs/heads/main", tmp_path).content == ""
    assert one("git commit -am x && git push origin main", tmp_path).content == ""
    assert one("git push --all origin", tmp_path).content == ""
    git("tag", "-a", "v1", "-m", "v1")
    assert one("git push origin v1", tmp_path).content != ""
    assert one("git push origin :gone", tmp_path).content != ""


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
