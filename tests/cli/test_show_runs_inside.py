"""The runs that were started inside of a run are listed with it: by `outlast run` in its script, and as a step's agent."""

from outlast.dashboard.overview.index import Index
from outlast.dashboard.run import pages
from outlast.web.pages import run as run_page
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.support.environment import TIMEOUT_S
from tests.web.sample_documents import view


def with_runs_inside(host: Host) -> Scripted:
    """A script that starts a run inside of its own, and an agent as a step of it."""
    agent = Scripted(host)
    agent.says("true")
    inner = f"outlast run --task inner -- true && outlast step fix -- {agent.program} -p mend"
    assert host.start("t", "sh", "-c", inner).wait(TIMEOUT_S) == 0, host.said("t")
    return agent


def test_show_and_the_page_list_the_runs_inside_and_where_each_is_inside_of(host: Host) -> None:
    agent = with_runs_inside(host)
    outer = host.summary("t").run
    whole = host("show", outer, "--json", cwd=agent.work).json
    inner, step = whole["inside"]
    assert (inner["task"], inner["standing"], inner["status"]) == ("inner", "done", "done")
    assert "fix" in step["task"]
    assert step["beats"] > 0
    assert whole["within"] == ""
    assert whole["children"] == [], "they are runs of their own"
    shown = host("show", outer, cwd=agent.work).out
    assert f"inside   {inner['run']} inner: done" in shown
    assert f"inside   {step['run']} {step['task']}: done" in shown
    told = host("show", inner["run"], "--json", cwd=agent.work).json
    assert (told["within"], told["inside"]) == (outer, [])
    assert f"within   {outer}" in host("show", inner["run"], cwd=agent.work).out

    index = Index(host.store)
    assert {row.run: row.within for row in index.rows()} == {
        outer: "",
        inner["run"]: outer,
        step["run"]: outer,
    }
    page = run_page.render(view(), pages.page(host.store, index, outer))
    assert page.count(f'href="/runs/{inner["run"]}"') == page.count(f'href="/runs/{step["run"]}"') == 1
    assert f'href="/runs/{outer}"' in run_page.render(view(), pages.page(host.store, index, step["run"]))


def test_a_run_that_is_begun_again_outside_is_another(host: Host) -> None:
    agent = Scripted(host)
    hold = "[ -e ../go ]"
    inner = f"outlast run --task inner --restarts 1 -- sh -c '{hold}' || true"
    assert host.start("t", "sh", "-c", inner).wait(TIMEOUT_S) == 0, host.said("t")
    [inside] = host("show", "t", "--json", cwd=agent.work).json["inside"]
    assert inside["standing"] == "quarantined"
    host.let_go()
    assert host("resume", inside["run"], cwd=agent.work).code == 0
    [inside] = host("show", "t", "--json", cwd=agent.work).json["inside"]
    assert inside["standing"] == "done", "resumed as it was started"
    again = host("run", "--task", "inner", "--again", "--", "sh", "-c", hold, cwd=agent.work)
    assert again.code == 0, again.err
    assert [each["run"] for each in host("show", "t", "--json", cwd=agent.work).json["inside"]] == [
        inside["run"]
    ]
