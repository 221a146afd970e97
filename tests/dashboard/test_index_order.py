"""Which runs the index lists, and in what order: needy first, by project, by search, in pages."""

from outlast.core import events as ev
from outlast.core.values import NOTHING, Allowance, Parent
from outlast.dashboard.documents import Ask
from outlast.dashboard.overview import filters
from outlast.dashboard.overview.index import Index
from outlast.store.protocol import Store
from tests.dashboard.pen import AT, HOUR, Pen, beat, ended, intended, looked, runs_of, started, tasks


def test_what_needs_a_person_is_on_top_and_then_the_latest(store: Store, pen: Pen) -> None:
    pen.open("done", ev.Finished(at=AT + 5 * HOUR))
    pen.open("old failure", ended("failed", "checks", AT))
    pen.open("stopped", ended("interrupted", "signal", AT + 4 * HOUR))
    pen.open("new failure", ended("failed", "checks", AT + HOUR))
    pen.write(pen.open("running"), started(AT + 3 * HOUR))
    index = Index(store, clock=lambda: AT + 5 * HOUR)
    order = ["new failure", "old failure", "stopped", "running", "done"]
    assert tasks(index) == tasks(index, grouped=False) == order
    assert tasks(index, up=True) == tasks(index, grouped=False, up=True) == order[::-1]
    overview = index.overview(Ask())
    assert [(count.name, count.runs) for count in overview.whats] == [
        ("needs you", 2), ("stopped", 1), ("running", 1), ("done", 1),
    ]  # fmt: skip
    assert overview.projects[0].needs_you == 2
    assert overview.projects[0].label == "app"


def test_each_order_has_the_most_on_top_and_tasks_by_their_letters(store: Store, pen: Pen) -> None:
    pen.open("b", beat(1, AT + HOUR, tokens=500))
    pen.open("A", beat(1, AT + 3 * HOUR, tokens=10), beat(2, AT + 3 * HOUR, tokens=10))
    pen.open("c", ev.StageSet(at=AT + 2 * HOUR, stage="x"))
    index = Index(store)
    for grouped in (True, False):
        assert tasks(index, sort="activity", grouped=grouped) == ["A", "c", "b"]
        assert tasks(index, sort="created", grouped=grouped) == ["c", "A", "b"]
        assert tasks(index, sort="spent", grouped=grouped) == ["b", "A", "c"]
        assert tasks(index, sort="beats", grouped=grouped) == ["A", "b", "c"]
        assert tasks(index, sort="task", grouped=grouped) == ["A", "b", "c"]
        assert tasks(index, sort="task", up=True, grouped=grouped) == ["c", "b", "A"]


def test_projects_stand_together_and_children_under_their_roots(store: Store, pen: Pen) -> None:
    quiet = pen.open("quiet", project="/src/quiet/.git", at=AT + 9 * HOUR)
    one = pen.open("one", ev.StageSet(at=AT + HOUR, stage="x"))
    pen.open("two", ev.StageSet(at=AT + 2 * HOUR, stage="x"))
    child = pen.open("child", parent=Parent(one, 1, one))
    pen.open("grandchild", parent=Parent(child, 1, one))
    index = Index(store)
    assert tasks(index) == ["quiet", "two", "one", "child", "grandchild"]
    assert [row.children for row in index.overview(Ask()).rows] == [0, 0, 1, 1, 0]
    pen.write(child, intended(policy="ask"))
    pen.release()
    wanted = ["one", "child", "grandchild", "two", "quiet"]
    looked(index, one)
    assert tasks(index) == wanted, "a child that needs a person lifts its root, and that its project"
    row = index.row(child)
    assert (row.what, row.act, row.command) == (
        "needs you", "settle", f"outlast settle {child} 1.1",
    )  # fmt: skip
    assert index.row(one).in_doubt == 1
    assert index.row(quiet).what == "stopped"


def test_of_a_child_whose_root_works_nothing_is_for_a_person(store: Store, pen: Pen) -> None:
    root = pen.open("root")
    pen.write(root, started())
    child = pen.open("child", ended("failed", "checks"), parent=Parent(root, 1, root))
    doubtful = pen.open("doubtful", intended(policy="ask"), parent=Parent(root, 1, root))
    index = Index(store)
    assert [(index.row(run).what, index.row(run).command) for run in (child, doubtful)] == [
        ("stopped", None)
    ] * 2
    assert index.row(root).what == "running"
    pen.release()
    looked(index, root)
    assert [index.row(run).what for run in (root, child, doubtful)] == ["needs you", "stopped", "needs you"]
    filtered = index.overview(Ask(q="nothing has this word"))
    assert (filtered.rows, filtered.needs_total) == ((), 2), "what needs a person is told whatever is asked"
    assert {row.run for row in filtered.needs} == {root, doubtful}


def test_a_root_is_shown_if_one_of_its_children_fits_and_pages_are_cut_at_roots(
    store: Store, pen: Pen
) -> None:
    for number in range(5):
        root = pen.open(f"root{number}", at=AT + number * HOUR)
        for name in ("left", "right"):
            pen.open(f"{name}{number}", parent=Parent(root, 1, root), at=AT + number * HOUR)
    index = Index(store)
    assert tasks(index, q="left3") == ["root3", "left3"]
    assert index.overview(Ask(q="left3")).found == 1
    assert tasks(index, q="left3", grouped=False) == ["left3"]
    first, second, third = (index.overview(Ask(size=6, page=page)) for page in (1, 2, 3))
    assert (first.pages, first.found, len(first.rows), len(third.rows)) == (3, 15, 6, 3)
    assert [row.task for row in first.rows][::3] == ["root4", "root3"]
    assert len({*runs_of(first), *runs_of(second), *runs_of(third)}) == 15
    assert len(index.overview(Ask(size=1)).rows) == 3, "a family is not torn"
    assert index.overview(Ask(page=99)).page == 1, "a page that there is not is the last one"
    assert index.overview(Ask(size=10**9, page=-1)).page == 1


def test_a_root_with_very_many_children_shows_those_that_matter(store: Store, pen: Pen) -> None:
    root = pen.open("root")
    for number in range(filters.CHILDREN_MAX + 5):
        pen.open(f"c{number}", ev.Finished(at=AT), parent=Parent(root, 1, root))
    pen.open("open", ended("interrupted", "crash"), parent=Parent(root, 1, root))
    index = Index(store)
    found = tasks(index)
    assert (found[:2], len(found)) == (["root", "open"], 1 + filters.CHILDREN_MAX)
    assert index.row(root).children == filters.CHILDREN_MAX + 6


def test_a_search_finds_every_word_anywhere_without_case(store: Store, pen: Pen) -> None:
    pen.open("1411", ended("failed", "checks"), goal="Mend the PARSER", agent="claude", model="opus")
    other = pen.open("1412", goal="write a page", project="/src/Straße/.git", agent="codex")
    index = Index(store)
    for q in (
        "parser",
        "PARSER mend",
        "claude",
        "OPUS",
        "failed",
        "checks",
        "1411",
        "needs you",
        "app",
        "why",
    ):
        assert tasks(index, q=q) == ["1411"], q
    for q in ("STRASSE", "codex page", other[:6]):
        assert tasks(index, q=q) == ["1412"], q
    for q in ("parser page", "\x00", "%", "zz"):
        assert tasks(index, q=q) == [], q
    assert len(tasks(index, q="  ")) == 2


def test_counts_leave_out_the_filter_they_belong_to(store: Store, pen: Pen) -> None:
    for number in range(12):
        closing = ev.Finished(at=AT) if number % 2 else ended("failed", "checks")
        pen.open(
            f"t{number}", closing, project=f"/src/p{number % 3}", agent=("claude", "codex")[number % 4 == 0],
        )  # fmt: skip
    index = Index(store)
    overview = index.overview(Ask(what=("done",), project="p1", agent="claude"))
    assert {row.task for row in overview.rows} == {"t1", "t7"}
    assert {count.name: count.runs for count in overview.whats} == {"needs you": 1, "done": 2}
    assert {count.label: count.runs for count in overview.projects} == {"p0": 2, "p1": 2, "p2": 2}
    assert {count.name: count.runs for count in overview.agents} == {"claude": 2}
    assert {count.name: count.runs for count in overview.statuses} == {"done": 2}
    both = index.overview(Ask(status=("done", "failed"), project="/src/p1"))
    assert (both.found, both.total) == (4, 12)


def test_what_is_told_of_all_runs_is_told_of_all_whatever_is_asked(store: Store, pen: Pen) -> None:
    pen.open("a", beat(1, tokens=1_000), ended("failed", "checks"), project="/src/one")
    pen.open("b", beat(1, tokens=20), ev.Finished(at=AT), project="/src/two")
    index = Index(store)
    everything = index.overview(Ask())
    for ask in (Ask(), Ask(project="two"), Ask(what=("done",)), Ask(q="nothing")):
        overview = index.overview(ask)
        assert (overview.needs_total, overview.all_whats) == (1, everything.all_whats)
        assert overview.all_spent == everything.spent
    assert [(count.name, count.runs) for count in everything.all_whats] == [("needs you", 1), ("done", 1)]
    within = index.overview(Ask(), within="two")
    assert (within.total, within.needs_total, within.all_spent) == (
        1,
        0,
        index.overview(Ask(project="two")).spent,
    )


def test_by_project_the_needy_come_first_in_each(store: Store, pen: Pen) -> None:
    pen.open("late", ev.Finished(at=AT + HOUR), project="/src/b")
    pen.open("needy", ended("failed", "checks"), project="/src/b")
    pen.open("other", ev.Finished(at=AT), project="/src/a")
    index = Index(store)
    for grouped in (True, False):
        assert tasks(index, sort="project", grouped=grouped) == ["other", "needy", "late"]
        assert tasks(index, sort="project", up=True, grouped=grouped) == ["late", "needy", "other"]


def test_the_sum_counts_nothing_twice(store: Store, pen: Pen) -> None:
    root = pen.open("root", beat(1, tokens=1_000))
    pen.open("child", beat(1, tokens=300), parent=Parent(root, 2, root))
    pen.open("other", beat(1, tokens=7))
    index = Index(store)
    for grouped in (True, False):
        assert index.overview(Ask(grouped=grouped)).spent.tokens == 1_307
        assert index.overview(Ask(q="child", grouped=grouped)).spent.tokens == 300
        assert index.overview(Ask(q="nothing", grouped=grouped)).spent.tokens == 0


def test_the_unit_nearest_to_its_limit_comes_first_and_what_to_type_is_an_act(store: Store, pen: Pen) -> None:
    run = pen.open("t", budget=Allowance(tokens=1_000, beats=4, cost_microusd=10**6))
    pen.write(
        run, started(), ev.PlanSet(at=AT, steps=NOTHING, total=8), *[beat(number) for number in (1, 2, 3)]
    )
    index = Index(store, clock=lambda: AT)
    row = index.row(run)
    assert [(meter.unit, meter.used_pct, meter.forecast) for meter in row.meters] == [
        ("beats", 75.0, None), ("tokens", 30.0, 800), ("usd", 0.0, None),
    ]  # fmt: skip
    assert (row.beats, row.plan_total, row.attempts, row.act) == (3, 8, 1, None)
    pen.write(run, beat(4), ended("interrupted", "budget", evidence="4 of 4 beats done"))
    row = index.row(run)
    assert (row.what, row.act, row.command) == (
        "needs you",
        "resume",
        f"outlast resume {run} --budget beats=+2",
    )
    pen.write(run, ended("failed", "checks"))
    row = index.row(run)
    assert (row.act, row.command) == ("resume", f"outlast resume {run} --budget beats=+2"), (
        "it is spent still"
    )
