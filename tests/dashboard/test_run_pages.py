"""A run's pages: whole, in bounded parts, in the words of the commands, and at the same cost however long the run is."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import outlast
from outlast import settings
from outlast.cli.main import main
from outlast.core import events as ev
from outlast.core.plan import Step
from outlast.core.values import Parent
from outlast.dashboard import documents as dashboard_documents
from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import effects, pages as run_pages
from outlast.dashboard.saves import cache
from outlast.errors import UnknownRun
from outlast.inspect import show
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.supervisor.control import standing
from outlast.supervisor.output.log import Log, part_path
from outlast.supervisor.output.log_reader import read_log
from tests.supervisor.supervised_command import Night
from tests.support.environment import Isolated, isolate
from tests.support.journals.held_runs import held
from tests.support.journals.large_stores import long_run
from tests.support.journals.night import make_night
from tests.support.journals.scribe import AgentCli, Scribe, new_id
from tests.support.processes import wait_for

BEGIN = datetime(2026, 3, 1, 22, tzinfo=UTC)
CLAUDE = AgentCli("claude", "claude", "opus", 1_000)
CALLS_RATIO_MAX, STEPS_RATIO_MAX = 10, 50  # of a run that is 200 times as long


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "store")
    yield made
    made.close()


def scribe(rng: Random, agent: AgentCli | None = None, **more: Any) -> Scribe:
    return Scribe(rng, BEGIN, "1411", "/srv/app/.git", "fix the parser", agent, **more)


def put(store: Store, *scribes: Scribe) -> str:
    """The runs in the store; the id of the first."""
    first, *others = [each.journal for each in scribes]
    return store.create(*first, children=others)


@contextlib.contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """Every statement that the store's readers run inside the block."""
    found: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        found.append(sql)
        return True

    reader = store._db._reader
    reader.exec_trace = trace
    try:
        yield found
    finally:
        reader.exec_trace = None


def said(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            assert main(list(words)) == 0
    finally:
        settings.tolerate(None)  # as a process that looks does, and this one is others' too
    return out.getvalue()


# -- cost --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_and_long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Store, str]]]:
    """A run of 50 beats and one of 10,000, each in a store of its own."""
    made = []
    for beats in (50, 10_000):
        root = tmp_path_factory.mktemp("long") / "store"
        run = long_run(root, beats)
        made.append((open_store(root), run))
    yield made
    for store, _ in made:
        store.close()


@pytest.mark.parametrize(
    "what", ["page", "timeline", "beats", "effects", "older effects", "journal", "context"]
)
def test_a_long_run_costs_no_more_queries_than_a_short_one(
    short_and_long: list[tuple[Store, str]], what: str
) -> None:
    counts = []
    for store, run in short_and_long:
        index = Index(store)
        asked = {
            "page": lambda store=store, index=index, run=run: run_pages.page(store, index, run),
            "timeline": lambda store=store, run=run: run_pages.timeline(store, run),
            "beats": lambda store=store, run=run: run_pages.beats(store, run),
            "effects": lambda store=store, run=run: run_pages.effects(store, run, size=20),
            "older effects": lambda store=store, run=run: run_pages.effects(store, run, before=150, size=20),
            "journal": lambda store=store, run=run: run_pages.journal(store, run),
            "context": lambda store=store, run=run: run_pages.context(store, run),
        }[what]
        asked()
        with statements(store) as told:
            asked()
        counts.append(len(told))
    assert 0 < counts[0] == counts[1] <= 20


def work_of(store: Store, make: Callable[[], object]) -> tuple[int, int]:
    """How many calls Python makes, and how many tens of steps SQLite's readers take: the same on a busy machine."""
    calls = steps = 0

    def called(*_: object) -> None:
        nonlocal calls
        calls += 1

    def stepped() -> bool:
        nonlocal steps
        steps += 1
        return False

    reader = store._db._reader
    reader.set_progress_handler(stepped, 10)
    sys.setprofile(called)
    try:
        make()
    finally:
        sys.setprofile(None)
        reader.set_progress_handler(None)
    return calls, steps


def test_the_page_of_a_long_run_is_made_in_a_moment(short_and_long: list[tuple[Store, str]]) -> None:
    work = []
    for store, run in short_and_long:
        index = Index(store)
        page = run_pages.page(store, index, run)  # it sums the budget up from the whole journal, once
        work.append(
            work_of(store, lambda store=store, index=index, run=run: run_pages.page(store, index, run))
        )
    (short_calls, short_steps), (calls, steps) = work
    assert calls < CALLS_RATIO_MAX * short_calls, f"{calls} calls, of a short run {short_calls}"
    assert steps < STEPS_RATIO_MAX * short_steps, (
        f"{steps * 10} steps of SQLite, of a short run {short_steps * 10}"
    )
    assert len(msgspec.json.encode(page)) < 100_000
    assert page.row.beats == page.shown.beats == 10_000


# -- the first page ----------------------------------------------------------------------------------------------------


def test_every_page_of_every_kind_of_run_can_be_made(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    with held(root) as alive:
        index = Index(alive.store)
        for row in index.rows():
            page = run_pages.page(alive.store, index, row.run)
            assert (page.row.run, page.shown.status) == (row.run, row.status)
            documents: list[object] = [page, run_pages.timeline(alive.store, row.run)]
            documents += [
                ask(alive.store, row.run)
                for ask in (
                    run_pages.beats,
                    run_pages.effects,
                    run_pages.journal,
                    run_pages.output,
                    run_pages.context,
                    run_pages.budget,
                )
            ]
            for document in documents:
                assert msgspec.json.encode(document)


def test_a_page_says_the_same_as_show_where_nothing_is_left_out(tmp_path: Path) -> None:
    root = make_night(tmp_path / "store")
    with held(root) as alive:
        index = Index(alive.store)
        for row in index.rows():
            summary = effects.summary_of(alive.store, row.run)
            shown = standing.with_children(alive.store, show.full(alive.store, summary))
            page = run_pages.page(alive.store, index, row.run).shown
            for name in shown.__struct_fields__:
                if name not in ("completed", "effects", "saves", "plan"):
                    assert getattr(page, name) == getattr(shown, name), (row.task, name)
            assert page.completed == shown.completed[-run_pages.LAST_BEATS :]
            undecided = {each.id for each in shown.effects if each.state in ("open", "in_doubt")}
            assert {each.id for each in page.effects} <= undecided


def test_attempts_saves_children_and_steps_are_bounded(store: Store, rng: Random) -> None:
    root = scribe(rng, workspace="/srv/app")
    root.plan(tuple(Step(f"step {number}") for number in range(3_000)))
    for _ in range(500):
        root.start().beat("went on", seconds=10).stop("crash", "it died")
    root.start()
    children = [
        Scribe(rng, BEGIN, f"part {number}", root.project, "a part", parent=root.child_of())
        for number in range(300)
    ]
    run = put(store, root, *children)
    page = run_pages.page(store, Index(store), run)
    assert (len(page.shown.attempts), page.timeline.attempts_total) == (200, 501)
    assert page.shown.attempts == page.timeline.attempts
    assert page.shown.attempts[-1].started_at == root.begun
    assert (len(page.timeline.moments), page.timeline.moments_total) == (200, 500)
    assert len(page.shown.saves) == run_pages.SAVES_MAX
    assert len(page.shown.children) == run_pages.CHILDREN_MAX
    assert page.shown.children[-1].task == "part 299"
    assert page.shown.plan is not None
    names = [step.name for step in page.shown.plan]
    assert names[0] == "(… 460 before)"
    assert names[-1] == "(… 2,460 after)"
    assert [step.name for step in page.shown.plan if step.state == "next"] == ["step 500"]
    assert len(names) == 2 * run_pages.STEPS_AROUND + 2
    assert len(page.timeline.beats) <= run_pages.CURVE_POINTS
    assert (page.timeline.beats[0].beat, page.timeline.beats[-1].beat) == (1, 500)


def test_a_page_says_how_to_go_on_without_us_and_that_a_supervisor_waits(tmp_path: Path) -> None:
    with Night(tmp_path, isolate(tmp_path)) as night:
        (night.folder / "agent.py").write_text("raise SystemExit(1)")
        env = night.isolated.environ(OUTLAST_RESTART_WAIT_S="60")
        night.start(
            "--task", "t", "--", sys.executable, "-P", str(night.folder / "agent.py"), env=env
        )  # fmt: skip
        page = _page_when(night, lambda page: bool(page.waits))
        assert re.fullmatch(r"for its next attempt: its supervisor, pid [0-9]+, starts it again", page.waits)
        assert page.shown.status == "interrupted"
        assert page.agent_line == ""


def _page_when(night: Night, fits: Any) -> dashboard_documents.RunPage:
    root = night.isolated.state_home / "outlast"
    wait_for(lambda: (root / "outlast.db").exists() or None)

    def look() -> dashboard_documents.RunPage | None:
        store = open_store(root)
        try:
            index = Index(store)
            pages = [run_pages.page(store, index, row.run) for row in index.rows()]
        finally:
            store.close()
        return next((page for page in pages if fits(page)), None)

    return wait_for(look, what="a page that fits")


def test_the_line_of_an_agents_session_is_shown(store: Store, rng: Random, tmp_path: Path) -> None:
    run = put(store, scribe(rng, CLAUDE, workspace=str(tmp_path)).start().beat("did it"))
    line = run_pages.page(store, Index(store), run).agent_line
    assert line.startswith(f"cd {tmp_path} && claude ")
    assert f"{run}-session" in line


@pytest.mark.parametrize("name", ["nobody", "", "../../etc/passwd", "run' OR 1=1 --", "%"])
def test_a_run_that_there_is_not_is_unknown_to_every_page(store: Store, rng: Random, name: str) -> None:
    put(store, scribe(rng))
    asks = (
        run_pages.timeline,
        run_pages.beats,
        run_pages.effects,
        run_pages.journal,
        run_pages.output,
        run_pages.context,
        run_pages.budget,
    )
    for ask in asks:
        with pytest.raises(UnknownRun):
            ask(store, name)
    with pytest.raises(UnknownRun):
        run_pages.page(store, Index(store), name)


# -- what happened when ------------------------------------------------------------------------------------------------


def test_the_timeline_tells_of_everything_that_is_no_beat(store: Store, rng: Random) -> None:
    told = scribe(rng, workspace="/srv/app").start().beat("one").warn("budget 75", "75% is spent")
    told.warn("wrap-up", "only the reserve is left").ask("pause", "alice").wait(5)
    told.call("pay", "ask").doubt("no answer").wait(5).settle(
        "happened", "bob", "seen on the page", {"id": 7}
    )
    told.confirm({"id": 7}).stop("quota", "5 hours are used up")
    told.park(told.at + timedelta(hours=1), "quota", "resets at one").wake("alice").start().beat("two").done()
    timeline = run_pages.timeline(store, put(store, told))
    assert [(each.kind, each.by) for each in timeline.moments] == [
        ("warning", ""), ("wrap-up", ""), ("asked", "alice"), ("doubt", ""), ("settled", "bob"), ("save", ""),
        ("parked", ""), ("woken", "alice"), ("done", ""),
    ]  # fmt: skip
    words = {each.kind: each.text for each in timeline.moments}
    assert words["settled"] == "effect 2.1: happened: seen on the page"
    assert words["doubt"] == "effect 2.1: no answer"
    assert words["save"] == "emergency save: quota: 5 hours are used up"
    assert [each.save for each in timeline.moments if each.kind == "save"] != [""]
    assert [each.seq for each in timeline.moments] == sorted(each.seq for each in timeline.moments)
    assert [(each.cause, each.status) for each in timeline.attempts] == [
        ("quota", "interrupted"),
        ("done", "done"),
    ]
    assert (timeline.since, timeline.until) == (BEGIN, told.at)
    assert [each.beat for each in timeline.beats] == [1, 2]


def test_what_was_asked_for_is_told_in_words(store: Store, rng: Random) -> None:
    told = scribe(rng).start().beat("one")
    asked: list[tuple[str, object, str]] = [
        ("pause", None, "pause"),
        ("more", {"beats": 1}, "more budget, 1 beat on top"),
        ("more", {"tokens": 200_000, "cost_microusd": 2_500_000}, "more budget, 200,000 tokens, $2.50 on top"),
        ("budget", {"beats": 9}, "a budget of 9 beats"),
        ("budget", None, "no limit any more"),
        ("budget", {"beats": 9, "fork": {"run": "r2", "task": "t-fork-1", "beat": 1, "budget": {"beats": 3}}},
         "3 beats moved to the fork t-fork-1"),
        ("settle", {"effect": "2.1", "finding": "did_not"}, "effect 2.1 did not happen"),
        ("settle", {"effect": "2.1", "finding": "happened", "result": {"id": 7}, "run": "r3"},
         'effect 2.1 of run r3 happened, with {"id":7} as its result'),
        ("fork", {"run": "r1", "beat": 4}, "a fork of run r1 after beat 4"),
        ("forked", {"run": "r2"}, "a fork, which is run r2"),
        ("restore", {"save": "0123456789abcdef", "to": "/srv/x"}, "save 0123456789ab restored into /srv/x"),
        ("accept_rewind", None, "going on although the store was rewound"),
        ("more", "nonsense", 'more: "nonsense"'),
        ("juggle", {"balls": 3}, 'juggle: {"balls":3}'),
    ]  # fmt: skip
    for what, args, _ in asked:
        told.ask(what, "alice", args)
    moments = run_pages.timeline(store, put(store, told)).moments
    assert [each.text for each in moments if each.kind == "asked"] == [words for _, _, words in asked]


def test_an_attempt_that_died_without_a_word_is_shown_with_what_is_known(store: Store, rng: Random) -> None:
    run = put(store, scribe(rng).start().beat("one").stop("crash", "first").start().beat("two"))
    first, lost = run_pages.timeline(store, run).attempts
    assert (first.cause, first.evidence) == ("crash", "first")
    assert lost.ended_at is None
    assert lost.cause == "host"
    assert "ran before the last boot" in lost.evidence


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


def test_the_budget_of_a_long_run_is_summed_up_once(short_and_long: list[tuple[Store, str]]) -> None:
    store, run = short_and_long[1]
    first = run_pages.budget(store, run)
    with cache.sums(store, run) as sums:
        place = sums.seq
    with statements(store) as found:
        again = run_pages.budget(store, run)
    with cache.sums(store, run) as kept:
        assert (kept, kept.seq) == (sums, place)
    assert place > 40_000
    assert len(found) < 20
    assert (again.by_beat, again.by_tool, again.spent) == (first.by_beat, first.by_tool, first.spent)


def test_another_journal_under_the_name_of_a_run_is_summed_up_anew(store: Store, rng: Random) -> None:
    one = scribe(rng).start().beat("x", tokens=70).stop("signal", "SIGTERM")
    run = put(store, one)
    assert [row.spent.tokens for row in run_pages.budget(store, run).by_beat] == [70]
    other = scribe(rng, run=run).start().beat("y", tokens=5).beat("z", tokens=6).stop("signal", "SIGTERM")
    store.forget(run)
    assert put(store, other) == run
    assert [row.spent.tokens for row in run_pages.budget(store, run).by_beat] == [5, 6]
