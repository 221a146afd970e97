"""Whatever an agent sends: an answer, in bounded time, without outlast's own packages, and no code run."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from outlast.agents.outward import alone
from outlast.agents.outward.classify import OUTWARD_MAX, classify, classify_argv
from tests.support import sweeps

MEGABYTE = 1 << 20
LIMIT_S = 60.0  # a busy machine; the slowest takes about two seconds

FRAGMENTS = st.sampled_from(
    "git|push|origin|gh|pr|comment|curl|-X|POST|-d|http://h:99999/p|http://[|ssh|npm|publish|$(|`|'|\"|(|)|{|}|;|&&|\\|"
    "|<<E|\nE\n|$((|))|${|}|A=(|case x in|esac|for|do|done|\\|\n|#|>|<(|&>|sudo|env|A=b|sh -c|eval|find|-exec|--|-C|=|"
    "twine upload|kubectl apply -f|$A|\0|\x85|é|\ud800|api|graphql|repos/o/r/pulls|{owner}/{repo}|-R|[@]|7".split(
        "|"
    )
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(FRAGMENTS, max_size=30).map(" ".join),
    st.lists(FRAGMENTS, max_size=30).map("".join),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["command", "cmd", "action", "cwd", "owner", "repo", "x"]) | TEXTS, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(TEXTS)
@settings(max_examples=sweeps.examples(600))
def test_no_text_raises(text: str) -> None:
    for one in classify("Bash", {"command": "git " + text}, "/"):
        assert one.signature
        assert "\n" not in one.signature


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    classify("Bash", {"command": "curl " + data.decode("utf-8", "surrogateescape")}, "/")
    classify("Bash", "gh " + data.decode("latin-1"), None)


@given(
    st.sampled_from(["Bash", "mcp__a__b", "mcp__github__create_issue", "mcp____", "", "exec_command"])
    | TEXTS,
    JSON,
)
@settings(max_examples=sweeps.examples(300))
def test_no_tool_and_no_input_raise(tool: str, value: object) -> None:
    classify(tool, value, "/nowhere")


@given(
    st.lists(TEXTS, max_size=8),
    st.sampled_from(["git", "gh", "curl", "http", "npm", "twine", "ssh", "aws", "wget", "tea"]),
)
@settings(max_examples=sweeps.examples(400))
def test_no_words_raise(words: list[str], program: str) -> None:
    classify_argv([program, *words], "/")


HOSTILE = {
    "parentheses": "(" * MEGABYTE + "git push",
    "substitutions": "$(" * (MEGABYTE // 2) + " git push",
    "backticks": "`" * MEGABYTE + "git",
    "quotes": "'" * (MEGABYTE + 1) + "git",
    "programs": "git " * (MEGABYTE // 4),
    "braces": "${" * (MEGABYTE // 2) + "git",
    "here-documents": "<<A " * (MEGABYTE // 4) + "\ngit push",
    "arithmetic": "((1) " * (MEGABYTE // 5) + "git",
    "dollar arithmetic": "$((1) " * (MEGABYTE // 6) + "git",
    "arrays": "A=(" * (MEGABYTE // 3) + "git",
    "groups": "{ " * (MEGABYTE // 2) + "git push",
    "expansions": "a='" + "git " * 5000 + "';" + "eval $a;" * 100_000,
    "wrappers": "sudo " * (MEGABYTE // 5) + "git push",
    "backslashes": "\\" * MEGABYTE + "git",
    "commands": "git push;" * (MEGABYTE // 9),
    "pipes": "x|" * (MEGABYTE // 2) + "git",
    "options": "curl " + "-d x " * (MEGABYTE // 5),
    "nested shells": "bash -c '" * 999 + "git push",
    "spaces": "( " + " " * MEGABYTE + "( git push",
    "too long": "x " * (3 * MEGABYTE) + "git push",
    "json": "{" + '"a":{' * (MEGABYTE // 5),
    "one word": "git push origin " + "a" * MEGABYTE,
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_anything_takes_seconds_and_gives_a_bounded_answer(name: str) -> None:
    began = time.monotonic()
    found = classify("Bash", {"command": HOSTILE[name]}, "/")
    assert time.monotonic() - began < LIMIT_S
    assert len(found) <= OUTWARD_MAX
    assert (
        len(
            json.dumps(
                [[one.signature, one.words, dict(one.probe.params) if one.probe else {}] for one in found]
            )
        )
        < 4 * MEGABYTE
    )
    if "git push" in HOSTILE[name]:
        assert found, "what cannot be read is not harmless"


def test_nothing_in_a_text_is_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    classify(
        "Bash",
        f"git push $(touch {made}) `touch {made}`; eval 'touch {made}'; curl -d @<(touch {made}) x",
        str(tmp_path),
    )
    assert not made.exists()


ALONE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("alone", sys.argv[1])
alone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
classify = alone.load()
found = classify.classify("Bash", {"command": "cd / && git push origin x && gh pr comment 7 -R o/r -b x"}, "/")
print(json.dumps([[one.signature for one in found], sorted(name for name in sys.modules if "msgspec" in name)]))
"""


def test_a_client_without_outlast_can_classify(tmp_path: Path) -> None:
    """Under -I -S there are no installed packages, so importing msgspec or outlast would fail."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", ALONE, alone.__file__],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == [["push origin refs/heads/x", "comment o/r#7"], []]
