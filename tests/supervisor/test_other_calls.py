"""Calls to the target of one in doubt that bring something else there: which of them is another call, and who says so.

An agent's call is its hook with a recorded input. What is said with `outlast settle --another` is said through the act itself.
"""

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from outlast import settings as ours
from outlast.acts import another, settle
from outlast.acts.plan import ActOutcome
from outlast.core import events as ev
from outlast.errors import UsageError
from outlast.operations import requests
from outlast.runs.engine.steps import append
from outlast.supervisor.agent.calls import interruptions, outward
from outlast.supervisor.agent.calls.repeats import ASIDE, BESIDE, WRITE_OUT
from outlast.supervisor.attempt.processes import AttemptProcesses, BelowUs
from outlast.supervisor.attempt.stop import Stopper
from outlast.supervisor.person import Person
from tests.supervisor.hook_driver import HOOKS, AttemptDies, Minded, after, before, is_denied, minded
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.supervisor.test_shims import HELD
from tests.support.environment import TIMEOUT_S, Isolated

SAME = "http://192.0.2.1/graphql"
FIRST = f"""curl -d '{{"query": "mutation {{ add(n: 1) }}"}}' {SAME}"""
RESPACED = f"""curl -d '{{ "query" : "mutation {{ add(n: 1) }}" }}' {SAME}"""
SECOND = f"""curl -d '{{"query": "mutation {{ add(n: 2) }}"}}' {SAME}"""
THIRD = f"""curl -d '{{"query": "mutation {{ add(n: 3) }}"}}' {SAME}"""
COMMENT = "gh issue comment 7 -R o/r --body 'It is done.'"
REWORDED = "gh issue comment 7 -R o/r --body 'Done now.'"
each_agent = pytest.mark.parametrize("agent", list(HOOKS))


def cut_off(folder: Path, command: str, agent: str = "claude") -> None:
    with minded(folder, agent) as there:
        assert there.allows(before(agent, command, "first"))
        raise AttemptDies


def says(there: Minded, effect: str = "1.1") -> ActOutcome:
    """The agent says that what this effect held is another call; the run is held by this very process."""
    store = there.run.journal.store
    return another.plan(store, requests.summary_of(store, there.run.id), effect).apply()


def answer(there: Minded, command: str, call: str) -> str:
    """Why a call is denied; empty where it is not."""
    code, out = there.ask(before(there.agent, command, call))
    return out.decode() if is_denied(code, out) else ""


# --- one address for many acts ------------------------------------------------------------------------------------------


@each_agent
def test_another_body_is_held_until_the_agent_says_by_name_that_it_is_another_call(
    tmp_path: Path, agent: str
) -> None:
    cut_off(tmp_path, FIRST, agent)
    with minded(tmp_path, agent) as there:
        text = answer(there, SECOND, "a")
        assert HELD in text
        assert f"settle {there.run.id} 1.1 --another" in text
        assert HELD in answer(there, SECOND, "b"), "it is not said by trying again"
        assert "1 call that effect 1.1 held is another one" in says(there).says
        assert answer(there, SECOND, "c") == ""
        assert HELD in answer(there, FIRST, "d"), "the same is held hard"
        assert HELD in answer(there, RESPACED, "e"), "however its JSON is written"
        raise AttemptDies


def test_what_was_named_stands_for_the_next_attempt_and_for_nothing_that_comes_later(tmp_path: Path) -> None:
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        assert HELD in answer(there, SECOND, "a")
        says(there)
        assert HELD in answer(there, THIRD, "b"), "it was not held when that was said"
        assert HELD in answer(there, THIRD, "c")
        raise AttemptDies
    with minded(tmp_path) as there:
        assert answer(there, SECOND, "d") == ""
        assert HELD in answer(there, THIRD, "e")
        raise AttemptDies


def test_what_the_agent_said_is_on_record(tmp_path: Path) -> None:
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        answer(there, SECOND, "a")
        says(there)
        answer(there, SECOND, "b")
        [asked] = [
            event for event in there.run.journal.events("requested") if isinstance(event, ev.Requested)
        ]
        assert asked.what == "another"
        assert there.run.journal.value(asked.args) == {"effect": "1.1"}
        assert [effect.state for effect in there.run.state.effects_open] == ["in_doubt", "intended"]
        raise AttemptDies


def test_before_it_has_held_a_call_there_is_none_to_name(tmp_path: Path) -> None:
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        with pytest.raises(UsageError, match="holds no other call"):
            says(there)
        assert HELD in answer(there, FIRST, "a")
        with pytest.raises(UsageError, match="holds no other call"):
            says(there)
        raise AttemptDies


def test_an_effect_that_is_settled_has_nothing_to_name(tmp_path: Path) -> None:
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        answer(there, SECOND, "a")
        there.settle("happened")
        with pytest.raises(UsageError, match="settled already"):
            says(there)
        assert answer(there, SECOND, "b") == "", "it is known by now that it is another one"
        raise AttemptDies


def test_what_was_settled_an_instant_ago_counts_for_the_very_next_call(tmp_path: Path) -> None:
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        assert HELD in answer(there, FIRST, "a")
        store = there.run.journal.store
        settle.plan(store, requests.summary_of(store, there.run.id), "1.1", "did_not").apply()
        assert answer(there, FIRST, "b") == ""
        raise AttemptDies


def test_what_was_said_is_not_half_taken_in_while_a_call_is_judged(tmp_path: Path) -> None:
    """The watch lowers the flag of a request before it records the request: a call between the two would not know of it."""
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        assert HELD in answer(there, SECOND, "a")
        says(there)
        person, waits = Person(there.said.append), there.run.journal.lease.request_waits
        processes = AttemptProcesses(there.run, person, BelowUs(there.run.id))
        watch = threading.Thread(
            target=Stopper(there.beats, there.server, processes, person).take_requests, daemon=True
        )
        with there.beats.lock:  # as whoever judges a call holds it
            watch.start()
            watch.join(0.3)
            assert waits()
        watch.join(TIMEOUT_S)
        assert not waits()
        assert answer(there, SECOND, "b") == ""
        raise AttemptDies


def test_an_agent_that_names_its_call_goes_on_in_the_same_attempt(host: Host) -> None:
    agent = Scripted(host)
    agent.killed_in("same")
    other = agent.posting("same").replace("-d {}", """-d '{"body": "e9"}'""")
    agent.says(
        agent.posting("same"),
        other,
        "outlast settle $OUTLAST_RUN 1.1 --another",
        other,
        "outlast settle $OUTLAST_RUN 1.1 --happened",
    )
    assert agent.run() == 0, host.said("t")
    assert [act.body for act in host.witness.performances()] == [None, "e9"]


PLAIN = [
    ("redis-cli -h db.test incr a", "redis-cli -h db.test incr b"),
    ("psql -h db.test -c 'insert 1'", "psql -h db.test -c 'insert 2'"),
    ("mysql -h db.test -e 'insert 1'", "mysql -h db.test -e 'insert 2'"),
    ("scp /etc/hostname h.test:/x", "scp /etc/passwd h.test:/x"),
    ("rsync /etc/hostname h.test:/x", "rsync /etc/passwd h.test:/x"),
    ("aws s3 cp /etc/hostname s3://b/k", "aws s3 cp /etc/passwd s3://b/k"),
    ("gh issue edit 7 -R o/r --add-label x", "gh issue edit 7 -R o/r --remove-label x"),
    ("gh pr edit 7 -R o/r --add-label x", "gh pr edit 7 -R o/r --title x"),
    ("gh release upload v1 -R o/r a.zip", "gh release upload v1 -R o/r b.zip"),
]


@pytest.mark.parametrize(("first", "second"), PLAIN)
def test_plain_words_tell_what_is_sent_and_can_be_named_another(
    tmp_path: Path, first: str, second: str
) -> None:
    cut_off(tmp_path, first)
    with minded(tmp_path) as there:
        text = answer(there, second, "a")
        assert HELD in text
        assert f"settle {there.run.id} 1.1 --another" in text
        assert WRITE_OUT not in text
        says(there)
        assert answer(there, second, "b") == ""
        assert HELD in answer(there, first, "c")
        raise AttemptDies


def test_a_merge_in_another_way_is_the_same_merge_and_says_so(tmp_path: Path) -> None:
    cut_off(tmp_path, "gh pr merge 7 -R o/r --squash")
    with minded(tmp_path) as there:
        text = answer(there, "gh pr merge 7 -R o/r --merge", "a")
        assert "with other words" in text
        assert "written out" not in text
        raise AttemptDies


def test_a_deploy_of_the_same_words_is_held_and_its_agent_is_told_why(tmp_path: Path) -> None:
    cut_off(tmp_path, "fly deploy")
    with minded(tmp_path) as there:
        text = json.loads(answer(there, "fly deploy", "a"))["hookSpecificOutput"]["permissionDecisionReason"]
        assert BESIDE in text
        assert "--another" not in text
        raise AttemptDies


def test_another_user_of_the_same_body_is_held_and_its_agent_is_told_why(tmp_path: Path) -> None:
    cut_off(tmp_path, f"curl -u me:a -d x {SAME}")
    with minded(tmp_path) as there:
        text = json.loads(answer(there, f"curl -u you:a -d x {SAME}", "a"))["hookSpecificOutput"]
        assert ASIDE in text["permissionDecisionReason"]
        with pytest.raises(UsageError, match="holds no other call"):
            says(there)
        raise AttemptDies


# --- targets that name the act ------------------------------------------------------------------------------------------


def test_where_the_target_names_the_act_other_words_are_held_and_cannot_be_named_another(
    tmp_path: Path,
) -> None:
    cut_off(tmp_path, COMMENT)
    with minded(tmp_path) as there:
        text = answer(there, REWORDED, "a")
        assert HELD in text
        assert "with other words" in text
        assert "--another" not in text
        with pytest.raises(UsageError, match="does not apply to effect"):
            says(there)
        assert HELD in answer(there, REWORDED, "b")
        there.settle("happened")
        text = answer(there, REWORDED, "c")
        assert "happened before" in text
        assert "It had other words" in text
        assert answer(there, REWORDED, "d") == ""
        raise AttemptDies


def test_a_further_comment_is_answered_once_however_many_there_were(tmp_path: Path) -> None:
    """In a fresh session, each that is made again is; one that is made twice in the same words is meant."""
    comments = [COMMENT.replace("It is done", f"Comment {number}") for number in range(3)]
    with minded(tmp_path) as there:
        for number, comment in enumerate(comments):
            assert answer(there, comment, f"a{number}") == ""
            there.ask(after("claude", comment, f"a{number}"))
        raise AttemptDies
    with minded(tmp_path) as there:
        there.start()
        assert "It had other words" in answer(there, REWORDED, "b")
        assert answer(there, REWORDED, "c") == ""
        for number, comment in enumerate(comments[1:]):
            assert "happened before" in answer(there, comment, f"d{number}")
        raise AttemptDies


def test_a_comment_by_the_forges_api_is_a_comment_whatever_its_words(tmp_path: Path) -> None:
    api = 'curl -d \'{"body": "%s"}\' https://api.github.com/repos/o/r/issues/7/comments'
    cut_off(tmp_path, api % "It is done.")
    with minded(tmp_path) as there:
        assert HELD in answer(there, api % "Done now.", "a")
        assert HELD in answer(there, REWORDED, "b")
        raise AttemptDies


# --- pushes -------------------------------------------------------------------------------------------------------------


def committed(work: Path, text: str) -> None:
    (work / "file").write_text(text)
    for words in (["add", "file"], ["-c", "user.name=u", "-c", "user.email=u@u", "commit", "-qm", text]):
        subprocess.run(["git", *words], cwd=work, check=True)


def test_a_push_of_other_commits_passes_and_of_the_same_ones_is_held(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-qb", "main"], cwd=work, check=True)
    subprocess.run(["git", "remote", "add", "origin", "/nowhere/to/be/found"], cwd=work, check=True)
    committed(work, "one")
    push = f"cd {work} && git push origin main"
    cut_off(tmp_path, push)
    with minded(tmp_path) as there:
        assert HELD in answer(there, push, "a")
        text = answer(there, f"cd {work} && git commit -qam two && git push origin main", "b")
        assert HELD in text
        assert WRITE_OUT in json.loads(text)["hookSpecificOutput"]["permissionDecisionReason"]
        committed(work, "two")
        assert answer(there, push, "c") == ""
        raise AttemptDies


# --- what is not known --------------------------------------------------------------------------------------------------


def test_what_a_call_sends_and_nobody_knows_beforehand_counts_as_the_same(tmp_path: Path) -> None:
    cut_off(tmp_path, f"date | curl -d @- {SAME}")
    with minded(tmp_path) as there:
        text = answer(there, SECOND, "a")
        assert HELD in text
        assert "--another" not in text
        with pytest.raises(UsageError, match="did not record what effect"):
            says(there)
        raise AttemptDies


def test_in_a_fresh_session_what_nobody_knows_the_content_of_is_answered_for_each_call_that_it_may_be(
    tmp_path: Path,
) -> None:
    piped = f"date | curl -fd @- {SAME}"
    with minded(tmp_path) as there:
        for number in range(2):
            assert answer(there, piped, f"a{number}") == ""
            there.ask(after("claude", piped, f"a{number}"))
        raise AttemptDies
    with minded(tmp_path) as there:
        there.start()
        text = answer(there, piped, "b")
        assert "cannot be compared" in text
        assert "1 more times; each is answered once" in text
        assert "cannot be compared" in answer(there, piped, "c"), "it may be the second one"
        assert answer(there, piped, "d") == ""
        raise AttemptDies


def test_a_call_of_a_journal_without_contents_counts_as_the_same(tmp_path: Path) -> None:
    signature = "POST 192.0.2.1/graphql"
    with minded(tmp_path) as there:
        now = there.beats.now()
        old = {"tool": "Bash", "outward": [{"kind": "http", "signature": signature, "words": ["curl"]}]}
        journal = there.run.journal
        intent = ev.EffectIntended(
            at=journal.now(), beat=now.number, n=now.number_effect(), name=signature, occurrence=0, key="old",
            own_key=True, args=journal.payload(old), policy="tell",
        )  # fmt: skip
        there.run.drive(append(intent, in_beat=True))
        raise AttemptDies
    with minded(tmp_path) as there:
        assert HELD in answer(there, SECOND, "a")
        there.settle("happened")
        text = answer(there, SECOND, "b")
        assert "happened before" in text
        assert "cannot be compared" in text
        assert answer(there, SECOND, "c") == ""
        raise AttemptDies


# --- policies of the user's own -----------------------------------------------------------------------------------------


def own_class(another: str) -> None:
    path = ours.user_folder() / outward.OWN_CLASSES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'[[outward]]\nkind = "ship"\nprograms = ["ship"]\ncommands = ["to *"]\nwords = 0\nvalues = ["--text"]\nanother = "{another}"\n'
    )


@pytest.mark.parametrize(
    ("policy", "is_held", "can_be_named"),
    [("held", True, False), ("named", True, True), ("free", False, False)],
)
def test_what_another_content_is_can_be_said_for_each_class(
    tmp_path: Path, state: Isolated, policy: str, is_held: bool, can_be_named: bool
) -> None:
    own_class(policy)
    cut_off(tmp_path, "ship to prod --text one")
    with minded(tmp_path) as there:
        text = answer(there, "ship to prod --text two", "a")
        assert (HELD in text) == is_held
        assert ("--another" in text) == can_be_named
        assert HELD in answer(there, "ship to prod --text one", "b")
        raise AttemptDies


def test_a_policy_that_is_none_is_refused_at_the_start(state: Isolated) -> None:
    own_class("nmaed")
    with pytest.raises(UsageError, match="no such another: nmaed; did you mean"):
        outward.OutwardCalls(os.environ)


def test_what_was_found_out_is_told_with_the_calls_own_words(tmp_path: Path) -> None:
    """Several go to one address: its agent could not know which of them did not happen."""
    cut_off(tmp_path, FIRST)
    with minded(tmp_path) as there:
        there.settle("did_not")
        assert there.allows(before("claude", COMMENT, "other"))
        there.ask(after("claude", COMMENT, "other"))
        there.attempt.responses.end_now()
        raise AttemptDies
    with minded(tmp_path) as there:
        [line] = interruptions.settled(there.run)
        assert "it did not happen" in line
        assert "add(n: 1)" in line
        raise AttemptDies
