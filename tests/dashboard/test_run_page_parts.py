"""The pages behind a run's first one: beats, effects, journal, output, context and budget, in the words of the commands."""

import json
from pathlib import Path
from random import Random

import pytest

import outlast
from outlast.core import events as ev
from outlast.core.values import Parent
from outlast.dashboard import documents as dashboard_documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import effects, pages as run_pages
from outlast.inspect import show
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.supervisor.output.log import Log, part_path
from outlast.supervisor.output.log_reader import read_log
from tests.dashboard.written_runs import BEGIN, put, said, scribe
from tests.support.environment import Isolated
from tests.support.journals.night import make_night
from tests.support.journals.scribe import AgentCli, Scribe, new_id

CLAUDE = AgentCli("claude", "claude", "opus", 1_000)


# -- beats, effects, journal -------------------------------------------------------------------------------------------


def test_beats_are_paged_newest_first_and_all_of_them(store: Store, rng: Random) -> None:
    told = scribe(rng).start()
    for number in range(57):
        told.beat(f"beat {number}", ("look",) * rng.randrange(3))
    run = put(store, told)
    found: list[int] = []
    before = None
    while True:
        page = run_pages.beats(store, run, before, size=10)
        assert page.total == 57
        found += [each.beat for each in page.beats]
        before = page.before
        if before is None:
            break
        assert len(page.beats) == 10
    assert found == list(range(57, 0, -1))


def _random_effects(rng: Random) -> Scribe:
    """Beats with effects of every fate, some intended again, some settled long after their beat."""
    told = scribe(rng).start()
    late: list[tuple[int, int]] = []
    for _ in range(rng.randrange(5, 60)):
        for _ in range(rng.randrange(4)):
            told.call("act", rng.choice(["ask", "probe", "reissue"]))
            for _ in range(rng.randrange(2)):
                told.doubt("nobody knows").settle("did_not", "probe", "not there").call(
                    "act", "probe", again=2
                )
            rng.choice(
                [lambda: told.confirm(1), lambda: told.fail("no"), lambda: told.settle("give_up", "eve", "")]
            )()
        if rng.random() < 0.2:
            told.call("push", "tell").doubt("cut off")
            late.append((told._open, told._effects))
        told.beat("on")
        if late and rng.random() < 0.3:
            beat, n = late.pop(rng.randrange(len(late)))
            told.say(
                ev.EffectSettled(at=told.at, beat=beat, n=n, finding="happened", by="agent", evidence="seen")
            )
    return told


@pytest.mark.parametrize("ahead", [effects.AHEAD_EVENTS, 7])
def test_pages_of_effects_hold_each_once_as_the_command_tells_them(
    store: Store, rng: Random, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "AHEAD_EVENTS", ahead)
    for _ in range(10):
        told = _random_effects(rng)
        told.task = new_id(rng)
        run = put(store, told)
        summary = effects.summary_of(store, run)
        wanted = show.effects(store, summary)
        size = rng.randrange(1, 30)
        pages = []
        before = None
        while True:
            page = run_pages.effects(store, run, before, size)
            pages.append(page)
            before = page.before
            if before is None:
                break
        top = [each for each in pages[0].effects if each.effect.state == "in_doubt"]
        assert list(pages[0].effects[: len(top)]) == top, "what is in doubt comes first"
        found = [each.effect for page in pages for each in page.effects]
        undecided = {each.id for each in wanted if each.state == "in_doubt"}
        assert {each.effect.id for each in top} == undecided
        settled = [each for each in found if each.id not in undecided]
        assert settled == [each for each in wanted if each.id not in undecided][::-1]
        assert pages[0].total == len(wanted)


def test_every_look_at_an_effect_is_told(store: Store, rng: Random) -> None:
    told = scribe(rng).start().call("pay", "probe").wait(1).doubt("timed out").wait(2)
    told.settle("cannot_tell", "probe", "the list is empty").wait(3).settle(
        "happened", "alice", "seen", {"id": 1}
    )
    (shown,) = run_pages.effects(store, put(store, told)).effects
    assert [(each.by, each.finding, each.evidence) for each in shown.looks] == [
        ("", None, "timed out"),
        ("probe", "cannot_tell", "the list is empty"),
        ("alice", "happened", "seen"),
    ]
    assert (shown.effect.state, shown.effect.settled_by) == ("confirmed", "alice")


def test_a_doubt_of_long_ago_and_of_a_child_is_on_top_of_the_first_page(store: Store, rng: Random) -> None:
    told = scribe(rng, CLAUDE).start().call("Bash git push", "tell").doubt("cut off").beat("went on")
    for _ in range(effects.NEAR_EVENTS // 4):
        told.beat("on", ("Bash ls", "Bash cat"))
    child = Scribe(rng, told.at, "part", told.project, "a part", parent=told.child_of())
    child.start().call("mail", "ask").doubt("no answer")
    run = put(store, told, child)
    page = run_pages.effects(store, run, size=10)
    top = [(each.run, each.effect.name, each.effect.state) for each in page.effects[:2]]
    assert top == [(run, "Bash git push", "in_doubt"), (child.run, "mail", "in_doubt")]
    assert page.effects[1].looks[0].evidence == "no answer"
    assert len(page.effects) == 12
    assert run_pages.effects(store, run, page.before, size=10).effects[0].effect.state == "confirmed"


def test_the_journal_has_the_words_of_outlast_log(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    store = open_store(root)
    try:
        for row in Index(store).rows():
            lines = said("log", row.run, "--store", str(root)).splitlines()
            documents = [
                json.loads(line) for line in said("log", row.run, "--store", str(root), "--json").splitlines()
            ]
            found: list[dashboard_documents.Entry] = []
            before = None
            while True:
                page = run_pages.journal(store, row.run, before, size=90)
                assert page.total == len(lines)
                found += page.events
                before = page.before
                if before is None:
                    break
            found.reverse()
            assert [(each.n, each.seq, json.loads(bytes(each.event))) for each in found] == [
                (document["n"], document["seq"], document["event"]) for document in documents
            ]
            for each, line in zip(found, lines, strict=True):
                assert line.startswith(f"{each.seq:>6}  ")
                assert line.endswith(f"  {each.tag:<16}  {each.text}".rstrip())
    finally:
        store.close()


# -- output and context ------------------------------------------------------------------------------------------------


def test_the_output_is_the_end_of_the_log_across_its_parts(store: Store, rng: Random) -> None:
    run = put(store, scribe(rng))
    folder = store.local.run_folder(run)
    for attempt in (1, 2):
        log = Log(folder, attempt, BEGIN, part_bytes=4_000)
        for number in range(900):
            log.put(
                rng.choice(["out", "err"]),
                f"line {attempt}.{number} {'x' * rng.randrange(60)}\n".encode(),
                BEGIN,
            )
        log.close(BEGIN)
    for attempt in (1, 2):
        whole = list(read_log(part_path(folder, attempt, 0), follow=False, stop=lambda: True))
        found = run_pages.output(store, run, None if attempt == 2 else 1, bytes_max=9_000)
        texts = [f"{line.at} {line.stream}| {line.text}" for line in found.lines]
        assert (found.attempt, found.attempts, found.problem) == (attempt, (1, 2), "")
        assert len(texts) > 50, "more than one part"
        assert texts == whole[-len(texts) :]
        assert 8_500 < sum(len(text) + 1 for text in texts) <= 9_000
        assert found.cut > 0
        everything = run_pages.output(store, run, attempt, bytes_max=1 << 20)
        assert everything.cut == 0
        kept = [line for line in whole if "were not kept" not in line or "end of" in line]
        assert [f"{line.at} {line.stream}| {line.text}" for line in everything.lines] == kept


def test_where_there_is_no_output_the_page_says_so(store: Store, rng: Random) -> None:
    run = put(store, scribe(rng))
    found = run_pages.output(store, run)
    assert (found.lines, found.attempt) == ((), 0)
    assert f"See `outlast --store {store.url} log {run}`" in found.problem
    part = Scribe(rng, BEGIN, "part", "/srv/app/.git", "a part", parent=Parent(run, 1, run))
    assert run in run_pages.output(store, put(store, part)).problem
    log = Log(store.local.run_folder(run), 3, BEGIN)
    log.close(BEGIN)
    assert "there are 3" in run_pages.output(store, run, 7).problem
    assert run_pages.output(store, run, -1).problem
    assert run_pages.output(store, run).problem == ""


def test_the_context_is_what_the_command_prints(
    state: Isolated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with outlast.run("1411", goal="Trap exit signals", workspace=folder) as run:
        run.plan(["one", "two", "three"])
        for beat in run.beats():
            (folder / "notes.md").write_text(f"beat {beat.number}\n")
            beat.remember("notes", "file:notes.md")
            beat.done(result={"at": beat.number})
            if beat.number == 2:
                break
    store = open_store(None)
    try:
        told = run_pages.context(store, run.id)
    finally:
        store.close()
    assert f"{told.text}\n" == said("context", "1411")
    assert "notes.md" in told.text
    assert told.tokens == json.loads(said("context", "1411", "--json"))["tokens"]


def test_the_budget_of_a_child_has_its_own_status(store: Store, rng: Random) -> None:
    root = scribe(rng).start()
    child = (
        Scribe(rng, BEGIN, "part", root.project, "a part", parent=root.child_of())
        .start()
        .beat("x", tokens=70)
    )
    run = put(store, root, child)
    lease = store.claim(run)
    try:
        assert run_pages.budget(store, child.run).status == run_pages.budget(store, run).status == "running"
        assert run_pages.budget(store, child.run).spent.tokens == 70
    finally:
        store.release(lease)


def test_another_journal_under_the_name_of_a_run_is_summed_up_anew(store: Store, rng: Random) -> None:
    one = scribe(rng).start().beat("x", tokens=70).stop("signal", "SIGTERM")
    run = put(store, one)
    assert [row.spent.tokens for row in run_pages.budget(store, run).by_beat] == [70]
    other = scribe(rng, run=run).start().beat("y", tokens=5).beat("z", tokens=6).stop("signal", "SIGTERM")
    store.forget(run)
    assert put(store, other) == run
    assert [row.spent.tokens for row in run_pages.budget(store, run).by_beat] == [5, 6]
