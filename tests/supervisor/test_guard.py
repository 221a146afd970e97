"""`outlast run --guard`: the outward calls of any command are on record before they are made, and none is made twice."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.supervisor.guarded_loop import ITEMS, GuardedLoop
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support.environment import TIMEOUT_S

ONCE = Counter(ITEMS)


def ended(loop: GuardedLoop, code: int, *options: str) -> None:
    """Whatever the loop needs to come to its end: starts, and a person who looks at the world."""
    for _ in range(4):
        if code == 0:
            return
        assert code in (1, 3), f"{code}: {loop.said}"
        loop.settled_by_a_person()
        code = loop.run(*options)
    raise AssertionError(f"it does not end: {code}: {loop.said}")


# -- killed at every instant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instant", "victim", "language"),
    [
        ("before post b", "everything", "bash"),
        ("before post b", "program", "bash"),
        ("before post b", "command", "bash"),
        ("after post b", "everything", "bash"),
        ("after post b", "program", "bash"),
        ("after post b", "command", "bash"),
        ("before push b", "everything", "bash"),
        ("after push b", "everything", "bash"),
        ("after item a", "everything", "bash"),
        ("after item b", "command", "bash"),
        ("after item c", "everything", "bash"),
        ("before post b", "everything", "python"),
        ("after post b", "program", "python"),
        ("after push b", "everything", "python"),
        ("after item b", "command", "python"),
    ],
)
def test_a_loop_killed_at_any_instant_goes_on_and_does_nothing_twice(
    host: Host, instant: str, victim: str, language: str
) -> None:
    loop = GuardedLoop(host, language)
    process = loop.killed(instant, victim, "--guard")
    code = loop.run() if victim == "everything" else process.wait(TIMEOUT_S)  # the same line without --guard
    if "post" in instant:
        assert code == 3, loop.said  # nobody can look up whether a blind post happened
        assert "outlast holds this call" in loop.said
        assert "settle" in loop.said
        assert host("report", cwd=loop.work).code == 3
        assert host.head().attempts == 2, "what would be held at every start is not tried again and again"
    else:
        assert code == 0, loop.said
    ended(loop, code)
    assert loop.posted() == ONCE, loop.said
    assert loop.pushed() == ONCE, loop.said
    assert loop.host.head().status == "done"


def test_without_the_guard_the_same_loop_posts_twice(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("after item a", "everything")
    assert loop.run() == 0, loop.said
    assert loop.posted()["a"] == 2
    assert not loop.effects()


def test_what_was_done_before_ends_again_as_it_did_and_prints_what_it_printed(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("after item a", "everything", "--guard")
    assert loop.run() == 0, loop.said
    said = [line for line in loop.said.splitlines() if line.startswith("said ")]
    assert len(said) == 4
    assert said[0] == said[1]
    assert "`curl` was not run again" in loop.said


def test_a_loop_that_only_posts_and_dies_after_each_post_gets_to_its_end(host: Host) -> None:
    """Each attempt gets one post farther and leaves the files as they were: that is progress all the same."""
    loop = GuardedLoop(host)
    once = f"mkdir {loop.folder}/$item 2>/dev/null && kill -9 $$"
    loop.script.write_text(f"for item in 1 2 3 4 5; do {loop.post}; {once}; done; true\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("12345"), loop.said
    assert host.head().attempts == 6


def test_what_comes_through_a_pipe_tells_calls_to_one_address_apart(host: Host) -> None:
    """The loop leaves out what it has done, so its first call after the kill is a further one; and it tries each twice."""
    loop = GuardedLoop(host)
    post = loop.post.replace("-d {}", "--data-binary @-").replace("blind/$item", "blind/one")
    sent = """printf '{"n":%s}' $item"""
    loop.script.write_text(
        f"for item in 1 2 3; do [ -e {loop.folder}/$item ] && continue\n"
        f"{sent} | {post} || {sent} | {post}; touch {loop.folder}/$item\n"
        f"[ $item = 1 ] && kill -9 $$; [ $item = 2 ] && rm {loop.folder}/1 && kill -9 $$; done; true\n"
    )
    assert loop.run("--guard") == 0, loop.said
    assert Counter(act.identity for act in host.witness.performances()) == Counter("123"), loop.said


def test_what_comes_through_a_pipe_arrives_whole(host: Host) -> None:
    """Also where it is longer than what is compared."""
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    curl.write_text(f"#!/bin/sh\nwc -c >> {loop.folder}/sizes\n")
    post = loop.post.replace("-d {}", "--data-binary @-")
    made = "head -c $item /dev/zero"
    loop.script.write_text(f"for item in 0 7 1048576 1048577 5000000; do {made} | {post}; done\n")
    assert loop.run("--guard") == 0, loop.said
    assert (loop.folder / "sizes").read_text().split() == ["0", "7", "1048576", "1048577", "5000000"]


def test_what_is_sent_while_it_comes_is_not_waited_for(host: Host) -> None:
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    curl.write_text(f"#!/bin/sh\necho >> {loop.folder}/begun\ncat\n")
    post = loop.post.replace("-d {}", "-sST -")
    waits = f"for n in $(seq 100); do [ -e {loop.folder}/begun ] && touch {loop.folder}/early && break; sleep .1; done"
    loop.script.write_text(f"item=a\n{{ {waits}; }} | {post}\n")
    assert loop.run("--guard") == 0, loop.said
    assert (loop.folder / "early").exists()


def test_a_loop_whose_posts_fail_makes_no_progress(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.script.write_text(
        f"for item in 1 2 3 4 5; do {loop.post.replace('blind', 'nowhere')}; done; kill -9 $$\n"
    )
    assert loop.run("--guard") == 3, loop.said
    assert (host.head().cause, host.head().attempts) == ("quarantine", 3)


def test_a_person_who_says_that_it_happened_may_say_what_it_printed(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("after post b", "everything", "--guard")
    assert loop.run() == 3, loop.said
    [doubt] = loop.doubts()
    words = ("settle", "t", doubt["id"], "--happened", "--result", '"said by hand"')
    assert host(*words, cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert "said said by hand" in loop.said
    assert loop.posted() == ONCE


def test_what_printed_too_much_is_refused_and_not_replayed_without_it(host: Host) -> None:
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    curl.write_text(curl.read_text() + "head -c 100000 /dev/zero | tr '\\0' x\n")
    loop.killed("after item a", "everything", "--guard")
    assert "x" * 100_000 in loop.said, "it is passed on whole"
    assert loop.run() == 3
    assert "`curl` was not run: outlast holds this call: it may be effect" in loop.said
    assert loop.posted()["a"] == 1
    [doubt] = loop.doubts()
    words = ("settle", "t", doubt["id"], "--happened", "--result", '"said by hand"')
    assert host(*words, cwd=loop.work).code == 0
    loop.run()
    assert "said said by hand" in loop.said
    assert loop.posted()["a"] == 1


def test_what_printed_too_much_is_not_made_again_by_a_loop_that_retries(host: Host) -> None:
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    curl.write_text(curl.read_text() + "head -c 100000 /dev/zero\n")
    died = f"mkdir {loop.folder}/died && kill -9 $$"
    loop.script.write_text(f"item=a\nfor n in 1 2 3; do {loop.post} && break; done; {died}; true\n")
    assert loop.run("--guard") == 3, loop.said
    assert loop.posted() == Counter("a"), loop.said


# -- calls that are only alike ---------------------------------------------------------------------------------------


def comments(loop: GuardedLoop) -> list[str]:
    """What the forge has."""
    path = loop.folder / "comments"
    return path.read_text().splitlines() if path.exists() else []


def commenting(host: Host, script: str) -> GuardedLoop:
    """A loop that comments with a `gh` of its own, and dies once, where it says so."""
    loop = GuardedLoop(host)
    gh = loop.folder / "bin" / "gh"
    gh.write_text(
        f'#!/bin/sh\nfor text do :; done\necho "$text" >> {loop.folder}/comments\nsync {loop.folder}/comments\n'
    )
    gh.chmod(0o755)
    dies = f"mkdir {loop.folder}/died 2>/dev/null && kill -9 $$"
    loop.script.write_text(
        script.replace("COMMENT", "gh issue comment 7 -R o/r --body").replace("DIES", dies)
    )
    return loop


RETRIED = "until COMMENT done-at-$(date +%s%N); do [ $((n += 1)) -lt 3 ] || exit 1; done; DIES; true\n"
IGNORED = "COMMENT done-at-$(date +%s%N); DIES; true\n"
STRICT = "set -e\nCOMMENT done-at-$(date +%s%N)\nif DIES; then :; fi\n"


@pytest.mark.parametrize("script", [RETRIED, IGNORED, STRICT], ids=["retried", "ignored", "strict"])
@pytest.mark.parametrize("word", ["--happened", "--did-not"])
def test_a_comment_in_other_words_is_not_made_by_trying_again(host: Host, script: str, word: str) -> None:
    loop = commenting(host, script)
    assert loop.run("--guard") == 3, loop.said
    assert len(comments(loop)) == 1, loop.said
    [doubt] = loop.doubts()
    assert f"settle {host.head().run} {doubt['id']} --happened" in loop.said
    assert loop.run() == 3, "until somebody says what it is"
    assert [each["id"] for each in loop.doubts()] == [doubt["id"]], "it is asked once"
    assert host("settle", "t", doubt["id"], word, cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert len(comments(loop)) == (1 if word == "--happened" else 2), loop.said
    assert host.head().status == "done"


def test_a_loop_that_skips_what_it_has_done_asks_for_the_next_and_repeats_nothing(host: Host) -> None:
    """What it did is on record word for word; what comes next is another comment, and only a person knows."""
    script = "for item in a b c; do grep -qx $item log && continue; COMMENT $item && echo $item >> log; [ $item = b ] && DIES; done; true\n"
    loop = commenting(host, script)
    assert loop.run("--guard") == 3, loop.said
    [doubt] = loop.doubts()
    assert host("settle", "t", doubt["id"], "--did-not", cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert comments(loop) == ["a", "b", "c"]


def test_what_is_in_doubt_holds_a_call_that_somebody_called_another(host: Host) -> None:
    """It was called another than the first. Whether it is the second, which was cut off, nobody has said."""
    first = f"COMMENT a; COMMENT b & until [ -e {host.folder}/begun ]; do sleep 0.05; done; DIES"
    loop = commenting(host, f"mkdir once 2>/dev/null && {{ {first}; }}; COMMENT c || exit 1\n")
    gh = loop.folder / "bin" / "gh"
    hangs = f'[ "$text" != b ] || {{ touch {host.folder}/begun; exec sleep 1000; }}\n'
    gh.write_text(gh.read_text().replace("done\n", f"done\n{hangs}", 1))
    assert loop.run("--guard") == 3, loop.said
    cut_off, asked = sorted(loop.doubts(), key=lambda each: str(each["id"]))
    assert host("settle", "t", asked["id"], "--did-not", cwd=loop.work).code == 0
    assert loop.run() == 3, loop.said
    assert comments(loop) == ["a"], loop.said
    assert host("settle", "t", cut_off["id"], "--did-not", cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert comments(loop) == ["a", "c"], loop.said


def test_what_is_on_record_word_for_word_stands_for_itself_beside_what_was_asked(host: Host) -> None:
    """The first comment is not made again because somebody said that a later one is another."""
    count = "n=$(($(cat n 2>/dev/null) + 1)); echo $n > n"
    loop = commenting(host, f"{count}; [ $n = 2 ] || COMMENT a; DIES; COMMENT b; true\n")
    assert loop.run("--guard") == 3, loop.said
    [doubt] = loop.doubts()
    assert host("settle", "t", doubt["id"], "--did-not", cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert comments(loop) == ["a", "b"], loop.said


def test_a_call_in_the_background_is_waited_for_when_the_command_has_ended(host: Host) -> None:
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    slow = f"touch {loop.folder}/begun; sleep 1"
    curl.write_text(curl.read_text().replace('reach "before', f'{slow}\nreach "before'))
    loop.script.write_text(f"item=a\n{loop.post} &\nuntil [ -e {loop.folder}/begun ]; do sleep 0.05; done\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("a")
    assert [each["state"] for each in loop.effects()] == ["confirmed"]


@pytest.mark.parametrize(
    "left",
    [
        "CALL & exit 0",
        "(sleep 1; CALL) & exit 0",
        "nohup sh -c 'sleep 1; CALL' >/dev/null 2>&1 &",
        "setsid sh -c 'sleep 1; CALL' &",
    ],
)
def test_what_a_command_leaves_in_the_background_is_waited_for(host: Host, left: str) -> None:
    loop = GuardedLoop(host)
    loop.script.write_text(left.replace("CALL", loop.post.replace("$item", "a")) + "\n")
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == Counter("a"), loop.said
    assert [each["state"] for each in loop.effects()] == ["confirmed"]


@pytest.mark.parametrize("word", ["--happened", "--did-not"])
def test_what_runs_on_too_long_is_named_and_the_run_is_not_done(host: Host, word: str) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "a")
    loop.script.write_text(f"[ -e {loop.folder}/settled ] || (sleep 1000; {post}) & exit 0\n")
    host.timing = "supervisor.background_s=1"
    assert loop.run("--guard") == 3, loop.said
    assert "stopping what the command left running" in loop.said
    [doubt] = loop.doubts()
    assert "left running" in doubt["name"]
    (loop.folder / "settled").touch()
    assert host("settle", "t", doubt["id"], word, cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert host.head().status == "done"


def test_an_agent_that_outlast_knows_is_guarded_once(host: Host) -> None:
    agent = Scripted(host)
    agent.says(agent.posting("a"))
    assert agent.run("--guard") == 0, host.said("t")
    assert agent.performed() == ["a"]
    assert [each["state"] for each in agent.effects()] == ["confirmed"]
    assert not list(host.root.glob("runs/*/guard"))


def test_what_was_done_in_a_beat_that_has_ended_is_not_done_again(host: Host) -> None:
    loop = GuardedLoop(host)
    text = loop.script.read_text()
    loop.script.write_text(text.replace('reach "after', 'outlast step note-$item -- true\n    reach "after'))
    loop.killed("after item b", "everything", "--guard")
    assert host.head().beats == 2
    assert loop.run() == 0, loop.said
    assert loop.posted() == ONCE, loop.said
    assert loop.pushed() == ONCE, loop.said


def test_killed_again_and_again_with_a_call_held_it_names_what_settles_that(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("after post a", "everything", "--guard")
    loop.script.write_text(f"item=a\n{loop.post}\nkill -9 $$\n")
    assert loop.run() == 3, loop.said
    [doubt], run = loop.doubts(), host.head().run
    assert host.head().cause == "quarantine"
    assert f"`outlast settle {run} {doubt['id']} --happened`" in loop.said
    shown = host("show", "t", cwd=loop.work)
    assert f"`outlast settle t {doubt['id']} --happened`" in shown.err
    [told] = host("report", "--json").json["runs"]
    assert told["command"].startswith(f"outlast settle {run} {doubt['id']}")
    assert "no progress" in told["why"], "why it was given up"
    doctor = host("doctor", cwd=loop.work)
    assert (doctor.code, f"outlast settle {run} {doubt['id']} --happened" in doctor.out) == (3, True)
    assert host("settle", "t", doubt["id"], "--happened", cwd=loop.work).code == 0
    assert "`outlast resume t` allows another try" in host("show", "t", cwd=loop.work).err
    loop.script.write_text(f"item=a\n{loop.post}\n")
    assert host("resume", "t", cwd=loop.work).code == 0
    assert loop.posted() == Counter("a")


def test_other_calls_pass_while_one_is_in_doubt(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("before post a", "everything", "--guard")
    loop.script.write_text(loop.script.read_text().replace("for item in a b c", "for item in b c"))
    assert loop.run() == 3, loop.said  # it ended well, and nobody knows about a
    assert loop.posted() == Counter("bc")
    assert [each["name"].rpartition("/")[2] for each in loop.doubts()] == ["a"]
    assert host("settle", "t", loop.doubts()[0]["id"], "--give-up", cwd=loop.work).code == 0
    assert loop.run() == 0, loop.said
    assert loop.posted() == Counter("bc"), "a command that had finished is not started again"


def test_accepting_the_unknown_ends_well(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.killed("before post a", "everything", "--guard")
    loop.script.write_text(loop.script.read_text().replace("for item in a b c", "for item in b c"))
    assert loop.run("--accept-unknown") == 0, loop.said
    assert loop.posted() == Counter("bc")


def test_a_call_that_failed_by_itself_is_tried_again(host: Host) -> None:
    loop = GuardedLoop(host)
    curl = loop.folder / "bin" / "curl"
    whole = curl.read_text()
    curl.write_text(whole.replace("reach \"before", f"[ -e {loop.folder}/once ] || {{ touch {loop.folder}/once; exit 22; }}\nreach \"before"))  # fmt: skip
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted() == ONCE
    assert loop.pushed() == ONCE


# -- steps and effects of scripts ------------------------------------------------------------------------------------


def test_below_an_effect_of_a_script_the_effect_is_the_record(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.posts_by("outlast effect post-$item --unknown reissue --")
    loop.killed("before post b", "everything", "--guard")
    assert loop.run() == 0, loop.said
    assert loop.posted() == ONCE, "it was reissued"
    posts = [each["name"] for each in loop.effects() if "push" not in each["name"]]
    assert sorted(posts) == ["post-a", "post-b", "post-c"]


def test_a_step_whose_call_was_held_is_done_again_when_that_is_settled(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.posts_by("outlast step post-$item --")
    loop.killed("before post b", "everything", "--guard")
    assert loop.run() == 3, loop.said
    ended(loop, 3)
    assert loop.posted() == ONCE
    assert loop.pushed() == ONCE


CLEANED = 'python3 -c \'import os, subprocess, sys; subprocess.run(sys.argv[1:], env={"PATH": os.environ["PATH"]}, check=True)\' CALL'


@pytest.mark.parametrize(
    "call",
    ["CALL", CLEANED, "sh -c 'CALL || exit 1'", "outlast step inner-N -- CALL"],
    ids=["plain", "cleaned", "shell", "nested"],
)
def test_a_recorded_step_eats_no_later_call_like_one_of_its_own(host: Host, call: str) -> None:
    """Three steps send the same text. Killed after the second, the third sends it for the first time."""
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "x")
    steps = "for n in 7 12 31; do outlast step notify-$n -- CALL; [ $n = 12 ] && mkdir DIR && kill -9 $$; done; true"
    steps = steps.replace("CALL", call.replace("N", "$n")).replace("CALL", post)
    loop.script.write_text(steps.replace("DIR", f"{loop.folder}/once"))
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted()["x"] == 3, loop.said
    assert "was not run again" not in loop.said


def test_a_call_before_a_recorded_step_is_not_eaten_by_it(host: Host) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "x")
    loop.script.write_text(
        f"[ ! -e {loop.folder}/once ] || {post}\noutlast step one -- {post}\nmkdir {loop.folder}/once && kill -9 $$; true\n"
    )
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted()["x"] == 2, loop.said


def test_a_step_that_failed_and_is_asked_for_again_repeats_nothing(host: Host) -> None:
    loop = GuardedLoop(host)
    post = loop.post.replace("$item", "x")
    text = f"outlast step one --retry-failed -- sh -c '{post}; test -e {loop.folder}/once'\nmkdir {loop.folder}/once && kill -9 $$; true\n"
    loop.script.write_text(text)
    assert loop.run("--guard") == 0, loop.said
    assert loop.posted()["x"] == 1, loop.said


def test_a_run_inside_a_guarded_one_is_guarded_itself_and_each_call_is_on_record_once(host: Host) -> None:
    loop = GuardedLoop(host)
    outer = loop.folder / "outer.sh"
    outer.write_text(f"outlast run --task inner -- bash {loop.script}\n")
    inner, loop.words = loop.words, ["bash", str(outer)]
    assert loop.run("--guard") == 0, loop.said
    assert inner
    assert loop.posted() == ONCE
    assert loop.pushed() == ONCE
    assert not loop.effects()
    found = host("effects", "inner", "--json", cwd=loop.work).json
    assert len(found["effects"] if isinstance(found, dict) else found) == 2 * len(ITEMS)


# -- how it is asked for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "repository", "guarded"),
    [
        ("", "", False),
        ("true", "", True),
        ("", "true", True),
        ("true", "false", True),
        ("false", "true", True),
    ],
)
def test_a_repository_switches_the_guard_on_and_never_off(
    host: Host, own: str, repository: str, guarded: bool
) -> None:
    loop = GuardedLoop(host)
    home = host.isolated.home / ".config" / "outlast"
    for folder, name, value in ((home, "config.toml", own), (loop.work, "outlast.toml", repository)):
        folder.mkdir(parents=True, exist_ok=True)
        if value:
            (folder / name).write_text(f"[run]\nguard = {value}\n")
    assert loop.run() == 0, loop.said
    assert bool(loop.effects()) == guarded


def test_a_command_that_reaches_outside_itself_is_guarded(host: Host) -> None:
    loop = GuardedLoop(host)
    loop.words = ["git", "push", "-q", "origin", "HEAD:main"]
    assert loop.run("--guard") == 0, loop.said
    assert [each["state"] for each in loop.effects()] == ["confirmed"]


def test_shims_of_a_supervisor_that_is_gone_refuse(host: Host, tmp_path: Path) -> None:
    loop = GuardedLoop(host)
    loop.killed("after item a", "everything", "--guard")
    shims = next(host.root.glob("runs/*/guard/shims"))
    done = host.finish([str(shims / "curl"), "-d", "x", "http://witness.test/act/blind/z"], text=True)
    assert done.returncode == 125
    assert "was not run" in done.stderr
    assert "z" not in loop.posted()


@pytest.mark.parametrize(
    ("setup", "words", "told"),
    [
        ('run_guard = "perhaps"', ["true"], "run_guard"),
        ("[run]\nguards = true", ["true"], "run_guards"),
        ("", [], "no command"),
    ],
)
def test_bad_input_is_one_line_a_hint_and_exit_2(host: Host, setup: str, words: list[str], told: str) -> None:
    work = host.repository("t")
    (work / "outlast.toml").write_text(setup)
    answer = host("run", "--guard", "--", *words, cwd=work)
    error, hint = answer.err.splitlines()
    assert answer.code == 2
    assert told in error
    assert hint.startswith("hint: ")
    assert not host.runs()


def test_outward_classes_that_cannot_be_read_are_refused_before_anything_is_begun(host: Host) -> None:
    work = host.repository("t")
    folder = host.isolated.home / ".config" / "outlast"
    folder.mkdir(parents=True)
    (folder / "outward.toml").write_text("[[outward]\n")
    answer = host("run", "--guard", "--task", "t", "--", "true", cwd=work)
    assert answer.code == 2
    assert "outward.toml" in answer.err
    assert len(answer.err.splitlines()) == 2
    assert not host.runs()


def test_the_launch_on_record_says_that_it_is_guarded(host: Host) -> None:
    work = host.repository("t")
    assert host("run", "--guard", "--task", "t", "--", "true", cwd=work).code == 0
    entries = [json.loads(line) for line in host("log", "t", "--json", cwd=work).out.splitlines()]
    started = next(entry["event"] for entry in entries if entry["event"]["t"] == "attempt_started")
    assert "guard" in json.dumps(started["launch"])
