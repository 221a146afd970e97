"""`outlast export` and `outlast import`: a run goes on in another store, with its children, its secrets masked."""

import json
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast.chaos.witness.client import Client, Witness
from tests.cli.command_line import Cli, LiveAgent, unknown_outcome, work
from tests.support.sweeps import Sweep


def parent_with_child(beats: int = 1) -> None:
    """A run whose first beat has a child with a large result, left after some beats."""
    with outlast.run("1411", goal="g", budget="500k") as run:
        run.plan(["one", "two", "three"])
        for beat in run.beats():
            if beat.number > beats:
                break
            with beat.run("child") as child:
                child.plan(["inner"])
                for inner in child.beats():
                    inner.act("comment", lambda text: text, "x" * 9_000)
                    inner.done("y" * 9_000)
            beat.spend(input=1000)
            beat.done(beat.number)


def comparable(shown: dict[str, Any]) -> dict[str, Any]:
    """What must be the same wherever the run goes on."""
    names = (
        "run",
        "task",
        "goal",
        "plan",
        "cursor",
        "beats",
        "completed",
        "effects",
        "memory",
        "budget",
        "children",
    )
    return {name: shown[name] for name in names}


# -- export and import ------------------------------------------------------------------------------------------------


def test_a_run_goes_on_in_another_store_under_its_own_id_and_keys(cli: Cli, tmp_path: Path) -> None:
    parent_with_child()
    before = cli.show()
    answer = cli.ok("export", "1411", "-o", tmp_path)
    (file,) = tmp_path.glob("*.outlast.tar.gz")
    assert answer.out.strip() == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    sealed = cli.show()
    assert (sealed["status"], sealed["cause"]) == ("handed_off", "handed_off")
    with pytest.raises(outlast.RunRefused):
        parent_with_child(3)
    there = cli.empty(tmp_path)
    there.ok("import", file)
    after = there.show()
    assert comparable(after) == comparable(before)
    assert after["status"] == "interrupted"
    (child,) = after["children"]
    assert there.show(child["run"])["completed"][0]["result"] == "y" * 9_000
    os.environ.update(there.isolated.variables)
    parent_with_child(3)
    assert there.show()["status"] == "done"


@pytest.mark.parametrize("status", ["done", "paused", "cancelled", "in_doubt"])
def test_the_status_survives_the_journey(cli: Cli, tmp_path: Path, status: str) -> None:
    work(beats=5 if status == "done" else 2, doubt_at=2 if status == "in_doubt" else 0)
    if status in ("paused", "cancelled"):
        cli.ok("pause" if status == "paused" else "cancel", "1411")
    assert cli.show()["status"] == status
    cli.ok("export", "1411", "-o", "run.tar.gz")
    there = cli.empty(tmp_path)
    there.ok("import", "run.tar.gz")
    assert there.show()["status"] == status
    cli.ok("export", "1411", "-o", "again.tar.gz")
    third = cli.empty(tmp_path / "third")
    third.ok("import", "again.tar.gz")
    assert third.show()["status"] == status


def test_an_imported_run_belongs_to_the_project_where_it_was_imported(cli: Cli, tmp_path: Path) -> None:
    work(beats=2, done=["make test"])
    cli.ok("export", "1411", "-o", tmp_path / "run.tar.gz")
    clone = tmp_path / "clone"
    clone.mkdir()
    there = Cli(clone, cli.empty(tmp_path).isolated)
    assert "its contract runs this command here: make test" in there.ok("import", tmp_path / "run.tar.gz").err
    assert there.show()["project"] == str(clone)


def test_a_copy_leaves_the_source_live_and_is_imported_as_a_fork(
    cli: Cli, agent: LiveAgent, tmp_path: Path
) -> None:
    agent.go_on()
    agent.wait_for("acting 2")
    source = cli.show()["run"]
    cli.ok("export", "1411", "--copy", "-o", "copy.tar.gz")
    agent.go_on()
    agent.wait_for("acting 3")
    there = cli.empty(tmp_path)
    there.ok("import", "copy.tar.gz", "--task", "1411")
    shown = there.show()
    assert shown["run"] != source
    assert (shown["fork"]["run"], shown["fork"]["beat"], shown["beats"]) == (source, 1, 1)
    assert cli.ok("import", "copy.tar.gz").out.startswith("1411-fork-1  ")
    assert "only a copy" in _sealed_import(cli, tmp_path)


def _sealed_import(cli: Cli, tmp_path: Path) -> str:
    work("sealed", beats=1)
    cli.ok("export", "sealed", "-o", "sealed.tar.gz")
    return cli.empty(tmp_path / "x")("import", "sealed.tar.gz", "--task", "y").complaint


def test_an_open_run_of_the_same_task_is_not_pushed_aside(cli: Cli, tmp_path: Path) -> None:
    work(beats=2)
    cli.ok("export", "1411", "-o", "run.tar.gz")
    there = cli.empty(tmp_path)
    os.environ.update(there.isolated.variables)
    other = work(beats=1)
    before = there.rows()
    assert f"has another run that is not over: {other}" in there("import", "run.tar.gz").complaint
    assert there.rows() == before
    there.ok("cancel", "1411")
    there.ok("import", "run.tar.gz")
    assert there.show()["beats"] == 2


def test_an_export_killed_anywhere_is_ended_by_the_same_command(
    cli: Cli, tmp_path: Path, sweep: Sweep
) -> None:
    parent_with_child()
    before = cli.show()
    file = cli.folder / "run.tar.gz"
    for nth in sweep:
        world = cli.copied(tmp_path / str(nth))
        died = world.killed_at(nth, "export", "1411", "-o", file)
        if died:
            assert not file.exists() or world.show()["status"] == "handed_off", f"killed at crash point {nth}"
            world.forked("export", "1411", "-o", file)
        assert world.show()["status"] == "handed_off"
        assert sorted(path.name for path in cli.folder.iterdir()) == ["run.tar.gz"], f"crash point {nth}"
        there = cli.empty(tmp_path / f"{nth}-there")
        there.forked("import", file)
        assert comparable(there.show()) == comparable(before), f"killed at crash point {nth}"
        assert there.show()["status"] == "interrupted", f"killed at crash point {nth}"
        file.unlink()
        sweep.met(died)
    assert sweep.total > 4


def test_an_import_killed_anywhere_is_ended_by_the_same_command(
    cli: Cli, tmp_path: Path, sweep: Sweep
) -> None:
    parent_with_child()
    before = cli.show()
    cli.forked("export", "1411", "-o", "run.tar.gz")
    for nth in sweep:
        there = cli.empty(tmp_path / str(nth))
        died = there.killed_at(nth, "import", "run.tar.gz")
        if died:
            answer = there.forked("import", "run.tar.gz")
            assert answer.code == 0 or "already in this store" in answer.complaint, f"crash point {nth}"
        assert comparable(there.show()) == comparable(before), f"killed at crash point {nth}"
        sweep.met(died)
    assert sweep.total > 6


def test_a_file_that_is_no_export_of_the_run_is_never_replaced(cli: Cli) -> None:
    work(beats=2)
    work("other", beats=2)
    cli.ok("export", "1411", "-o", "run.tar.gz")
    content = (cli.folder / "run.tar.gz").read_bytes()
    assert "is not an export of run" in cli("export", "other", "-o", "run.tar.gz").complaint
    assert (cli.folder / "run.tar.gz").read_bytes() == content
    assert cli.show("other")["status"] == "interrupted"
    answer = cli.ok("export", "1411", "-o", "run.tar.gz")
    assert "handed off before" in answer.err


# -- copies with children ---------------------------------------------------------------------------------------------


def family(task: str, world: Client, *, die_in: str = "") -> str:
    """A run whose second beat decides which parts there are: `done` is done, `open` has a done beat and one in flight."""

    def post(text: str, idempotency_key: str) -> Any:
        return world.act("keyed", "post", text, idempotency_key, identity=f"{task} {text}")["url"]

    def parts() -> list[str]:
        world.act("blind", "decide", task, identity=f"{task} decides")
        return ["done", "open"]

    try:
        with outlast.run(task, goal="g") as run:
            run.plan(["one", "two"])
            for beat in run.beats():
                with beat.run("early") as child:
                    child.finish(f"early in {beat.step}")
                names = beat.decide("parts", parts) if beat.step == "two" else []
                beat.act("post", post, f"{beat.step} root")
                for name in names:
                    with beat.run(name) as part:
                        part.plan(["a", "b"])
                        for inner in part.beats():
                            said = inner.decide(
                                "said", lambda text: text, f"{name} {inner.step} " + "y" * 9_000
                            )
                            inner.act("post", post, said[:6])
                            if f"{name} {inner.step}" == die_in:
                                raise KeyboardInterrupt
                            inner.done(said)
                beat.done(beat.step)
    except KeyboardInterrupt:
        pass
    return run.id


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with Witness.start(tmp_path / "witness.log") as witness:
        yield witness


def test_a_copy_carries_children_and_its_import_goes_on_in_them_under_new_ids_and_keys(
    cli: Cli, tmp_path: Path, witness: Witness
) -> None:
    source = family("1411", witness, die_in="open b")
    before = cli.show()
    cli.ok("export", "1411", "--copy", "-o", "copy.tar.gz")
    assert cli.show() == before
    there = cli.empty(tmp_path)
    assert there.ok("import", "copy.tar.gz", "--task", "copy", "--json").json["children"] == 4
    shown = there.show("copy")
    children = {(child["task"], child["beat"]): child for child in shown["children"]}
    statuses = {key: child["status"] for key, child in children.items()}
    assert statuses == {
        ("early", 1): "done", ("early", 2): "done", ("done", 2): "done", ("open", 2): "interrupted",
    }  # fmt: skip
    assert not {source, *(child["run"] for child in before["children"])} & {
        shown["run"],
        *(child["run"] for child in shown["children"]),
    }
    opened = there.show(children["open", 2]["run"])
    assert (opened["beats"], opened["parent"]["run"], opened["parent"]["root"]) == (
        1, shown["run"], shown["run"],
    )  # fmt: skip
    assert opened["completed"][0]["result"] == "open a " + "y" * 9_000
    os.environ.update(there.isolated.variables)
    assert family("copy", witness) == shown["run"]
    assert there.show("copy")["status"] == "done"
    seen = Counter(item.identity for item in witness.performances())
    assert seen == Counter(
        [f"1411 {text}" for text in ("one root", "two root", "done a", "done b", "open a", "open b")]
        + ["1411 decides", "copy open b"]
    )
    keys = {effect["key"] for effect in there.show(children["open", 2]["run"])["effects"]}
    known = {child["task"]: child["run"] for child in before["children"]}
    assert len(keys - {effect["key"] for effect in cli.show(known["open"])["effects"]}) == 1


def test_a_copy_killed_while_it_is_imported_is_imported_whole_by_the_same_command(
    cli: Cli, tmp_path: Path, witness: Witness, sweep: Sweep
) -> None:
    family("1411", witness, die_in="open b")
    cli.forked("export", "1411", "--copy", "-o", "copy.tar.gz")
    for nth in sweep:
        there = cli.empty(tmp_path / str(nth))
        died = there.killed_at(nth, "import", "copy.tar.gz")
        if died and there.tasks() == []:
            there.forked("import", "copy.tar.gz")
        assert there.tasks() == ["1411-fork-1"], f"killed at crash point {nth}"
        assert len(there.show("1411-fork-1")["children"]) == 4, f"killed at crash point {nth}"
        sweep.met(died)
    assert sweep.total > 4


def test_what_is_in_doubt_in_a_beat_with_children_is_left_out_of_the_copy(cli: Cli, tmp_path: Path) -> None:
    """The fork does it under a key of its own; all else that the beat recorded is replayed."""
    asked: list[str] = []

    def body(run: outlast.Run, act: Callable[..., object]) -> None:
        for beat in run.beats():
            beat.decide("d", asked.append, run.task)
            beat.act("first", asked.append, "first")
            with beat.run("part") as part:
                for inner in part.beats():
                    with inner.run("inmost") as inmost:
                        inmost.finish(7)
                    inner.act("post", act, unknown="ask")
                    inner.finish(inmost.result)
                    inner.done()
            beat.finish(part.result)
            beat.done()

    with pytest.raises(outlast.EffectInDoubt), outlast.run("1411") as run:
        body(run, unknown_outcome)
    cli.ok("export", "1411", "--copy", "-o", "copy.tar.gz")
    there = cli.empty(tmp_path)
    there.ok("import", "copy.tar.gz", "--task", "copy")
    assert there.show("copy")["status"] == "interrupted"
    os.environ.update(there.isolated.variables)
    with outlast.run("copy") as run:
        body(run, lambda: asked.append("posted"))
    assert (run.is_done, run.result) == (True, 7)
    assert asked == ["1411", "first", "posted"]


# -- secrets ----------------------------------------------------------------------------------------------------------


TOKEN = "ghp_" + "a1B2c3D4e5" * 4  # made up here, so that no scanner takes this file for a leak


URL = "https://ada:hunter2@example.org/x"


def leak(task: str = "1411", *, stop: bool = True, at_rest: bool = False) -> list[Any]:
    """Put secrets wherever a program can put one; what its open beat gets back."""
    got: list[Any] = []
    with outlast.run(task, goal=f"not masked: {TOKEN}") as run:
        run.plan(["one", "two"])
        for beat in run.beats():
            if at_rest and beat.number == 2:
                break
            got = [
                beat.decide("d", lambda: {"say": f"use {TOKEN}", "n": 1.5}),
                beat.act("post", lambda text: {"url": URL}, f"send {TOKEN}", key=f"key-{TOKEN}"),
                beat.decide("large", lambda: f"{TOKEN} " + "x" * 9_000),
            ]
            with beat.run("part") as part:
                part.finish(TOKEN)
            if stop and beat.number == 2:
                break
            beat.remember("notes", URL)
            beat.done(f"with {TOKEN}", evidence=URL)
    return got


def in_archive(file: Path) -> str:
    with tarfile.open(file) as tar:
        return "\n".join(
            content.read().decode() for member in tar if (content := tar.extractfile(member)) is not None
        )


@pytest.mark.parametrize("copy", [[], ["--copy"]], ids=["sealed", "copy"])
def test_an_export_masks_what_looks_like_a_secret_and_its_import_goes_on(
    cli: Cli, tmp_path: Path, copy: list[str]
) -> None:
    before = leak(at_rest=not copy)
    answer = cli.ok("export", "1411", "-o", "run.tar.gz", *copy)
    masked = [line for line in answer.err.splitlines() if ": GitHub token" in line or "URL" in line]
    assert f"{len(masked)} values are masked" in answer.err
    text = in_archive(cli.folder / "run.tar.gz")
    assert "hunter2" not in text
    left = [line for line in text.splitlines() if TOKEN in line]
    kept = {json.loads(line)["t"] for line in left}
    assert kept == {"run_opened", "effect_intended"}, "the goal and the act's own key are matched by"
    assert all(line.count(TOKEN) == 1 for line in left)
    there = cli.empty(tmp_path)
    assert "values were masked" in there.ok("import", "run.tar.gz", *(["--task", "1411"] if copy else [])).err
    os.environ.update(there.isolated.variables)
    after = leak(stop=False)
    assert there.show()["status"] == "done"
    if not copy:
        return
    expected = json.loads(json.dumps(before).replace(TOKEN, "[masked:GitHub token]"))
    expected[1]["url"] = "https://ada:[masked:password in a URL]@example.org/x"
    assert after == expected


def test_a_beat_in_flight_that_could_not_be_repeated_with_masks_is_not_sealed(cli: Cli) -> None:
    leak()
    answer = cli("export", "1411", "-o", "run.tar.gz")
    assert answer.code == 2
    assert "would be masked" in answer.err
    assert "--with-secrets" in answer.err
    assert cli.show()["status"] == "interrupted"
    assert not (cli.folder / "run.tar.gz").exists()


def test_a_result_of_several_lines_is_exported_as_it_can_be_read(cli: Cli, tmp_path: Path) -> None:
    with outlast.run("1411", goal="g") as run:
        beat = next(iter(run.beats()))
        beat.done(msgspec.Raw(b'{\n "a":\r\n 1}'))
    cli.ok("export", "1411", "-o", "run.tar.gz")
    there = cli.empty(tmp_path)
    there.ok("import", "run.tar.gz")
    assert there.show()["beats"] == 1


def test_an_export_with_secrets_masks_nothing(cli: Cli, tmp_path: Path) -> None:
    before = leak()
    answer = cli.ok("export", "1411", "-o", "run.tar.gz", "--with-secrets", "--json")
    assert answer.json["masked"] == []
    there = cli.empty(tmp_path)
    there.ok("import", "run.tar.gz")
    os.environ.update(there.isolated.variables)
    assert leak() == before


def test_what_was_masked_is_listed_with_its_place(cli: Cli) -> None:
    leak(at_rest=True)
    found = cli.ok("export", "1411", "-o", "run.tar.gz", "--json").json
    first = next(each for each in found["masked"] if each["event"] == "decided")
    assert first == {
        "run": found["run"], "seq": first["seq"], "event": "decided", "field": "value", "kinds": ["GitHub token"],
    }  # fmt: skip
    line = cli.ok("log", "1411", "--json").out.splitlines()[first["seq"] - 1]
    assert json.loads(line)["event"]["t"] == "decided"
    assert {each["field"] for each in found["masked"]} == {
        "value", "args", "result", "evidence", "remembered",
    }  # fmt: skip
    assert TOKEN in cli.ok("log", "1411", "--json").out, "the store itself is as it was"


def test_an_export_without_secrets_says_nothing_of_them(cli: Cli) -> None:
    work(beats=2)
    answer = cli.ok("export", "1411", "-o", "run.tar.gz")
    assert "masked" not in answer.err
