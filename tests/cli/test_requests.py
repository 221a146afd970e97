import sys

import pytest

import outlast
from tests.cli.command_line import AGENT, Cli, LiveAgent, unknown_outcome, work


def test_a_settled_effect_lets_the_run_go_on_with_the_given_result(cli: Cli) -> None:
    work(beats=2, doubt_at=2)
    answer = cli.ok("settle", "1411", "2.1", "--happened", "--result", '{"url": "found"}')
    assert "nothing more of run" in answer.err
    shown = cli.show()
    assert (shown["status"], shown["effects"][1]["state"]) == ("interrupted", "confirmed")
    assert shown["effects"][1]["settled_by"] == "tester"
    performed = []
    work(act=lambda **given: performed.append(given["issue"]))
    assert performed == [3, 4, 5]
    assert cli.show()["effects"][1]["result"] == {"url": "found"}


def test_an_effect_that_did_not_happen_is_performed_by_the_next_attempt(cli: Cli) -> None:
    work(beats=2, doubt_at=2)
    cli.ok("settle", "1411", "2.1", "--did-not")
    assert cli.show()["effects"][1]["state"] == "failed"
    performed = []
    work(act=lambda **given: performed.append(given["issue"]))
    assert performed == [2, 3, 4, 5]
    effect = cli.show()["effects"][1]
    assert (effect["state"], effect["attempts"], effect["settled_by"]) == ("confirmed", 2, "")


def test_an_effect_given_up_is_never_performed_again(cli: Cli) -> None:
    work(beats=2, doubt_at=2)
    cli.ok("settle", "1411", "2.1", "--give-up")
    performed = []
    work(act=lambda **given: performed.append(given["issue"]))
    assert performed == [3, 4, 5]
    assert cli.show()["effects"][1]["state"] == "given_up"


def test_an_effect_of_a_child_is_settled_by_naming_the_child(cli: Cli) -> None:
    def carry(fn: object) -> None:
        with outlast.run("1411") as run:
            run.plan(["only"])
            for beat in run.beats():
                with beat.run("child") as child:
                    child.plan(["one"])
                    for inner in child.beats():
                        inner.act("comment", fn, issue=1, unknown="ask")
                        inner.done()
                beat.done()

    with pytest.raises(outlast.EffectInDoubt):
        carry(unknown_outcome)
    shown = cli.show()
    assert shown["status"] == "in_doubt"
    (child,) = shown["children"]
    assert (child["task"], child["beat"], child["status"]) == ("child", 1, "in_doubt")
    assert f"outlast settle {child['run']} 1.1 --happened" in cli.ok("show", "1411").err
    assert child["run"] in cli.ok("effects", "1411").err
    cli.ok("settle", child["run"], "1.1", "--happened", "--result", "7")
    assert cli.show()["status"] == "interrupted"
    assert cli.show(child["run"])["effects"][0]["result"] == 7
    assert "settled already" in cli("settle", child["run"], "1.1", "--happened").complaint
    carry(unknown_outcome)
    assert cli.show()["status"] == "done"


def test_a_resting_run_is_paused_resumed_and_cancelled_at_once(cli: Cli) -> None:
    work(beats=2)
    assert "is paused now" in cli.ok("pause", "1411").err
    before = cli.rows()
    assert "is paused already" in cli.ok("pause", "1411").err
    assert cli.rows() == before
    with pytest.raises(outlast.RunRefused):
        work()
    assert cli.show()["evidence"] == "pause by tester"
    cli.ok("resume", "1411")
    cli.ok("resume", "1411")
    assert cli.show()["status"] == "interrupted"
    work(beats=3)
    cli.ok("cancel", "1411")
    cli.ok("cancel", "1411")
    assert (cli.show()["status"], cli.show()["beats"]) == ("cancelled", 3)
    assert "is cancelled" in cli("resume", "1411").complaint


def test_handing_off_seals_the_run_and_can_be_taken_back(cli: Cli) -> None:
    work(beats=2)
    cli.ok("handoff", "1411")
    cli.ok("handoff", "1411")
    with pytest.raises(outlast.RunRefused):
        work()
    assert "handed off" in cli("pause", "1411").complaint
    cli.ok("handoff", "1411", "--take-back")
    assert "is not handed off" in cli("handoff", "1411", "--take-back").complaint
    work()
    assert cli.show()["status"] == "done"


def test_a_killed_holder_does_not_stand_in_the_way(cli: Cli, agent: LiveAgent) -> None:
    agent.go_on()
    agent.wait_for("acting 2")
    agent.kill()
    cli.ok("pause", "1411")
    assert cli.show()["status"] == "paused"
    assert [attempt["cause"] for attempt in cli.show()["attempts"]] == ["crash"]
    cli.ok("resume", "1411")
    assert cli.show()["status"] == "in_doubt"
    cli.ok("settle", "1411", "2.1", "--happened")
    assert cli.show()["status"] == "interrupted"


@pytest.mark.parametrize(
    ("command", "status"), [("pause", "paused"), ("cancel", "cancelled"), ("handoff", "handed_off")]
)
def test_a_living_holder_is_asked_and_stops_after_the_act_under_way(
    cli: Cli, agent: LiveAgent, command: str, status: str
) -> None:
    assert "asked" in cli.ok(command, "1411").err
    assert "already asked" in cli.ok(command, "1411").err
    assert cli.show()["status"] == "running"
    agent.go_on()
    code, err = agent.end()
    assert (code, "asked by tester" in err) == (1, True)
    shown = cli.show()
    assert (shown["status"], shown["beats"], shown["effects"][0]["state"]) == (status, 1, "confirmed")


def test_what_a_dead_holder_never_took_in_takes_hold_before_the_next_wish(cli: Cli, agent: LiveAgent) -> None:
    cli.ok("pause", "1411")
    agent.kill()
    cli.ok("settle", "1411", "1.1", "--happened")
    assert cli.show()["status"] == "paused"
    cli.ok("resume", "1411")
    assert cli.show()["status"] == "interrupted"


def test_an_effect_under_way_cannot_be_settled(cli: Cli, agent: LiveAgent) -> None:
    before = cli.rows()
    assert "being performed" in cli("settle", "1411", "1.1", "--happened").complaint
    assert cli.rows()["requests"] == before["requests"]
    assert "is running" in cli("resume", "1411").complaint
    assert "is running" in cli("export", "1411").complaint


def test_a_doubt_of_an_earlier_attempt_is_settled_while_the_next_one_lives(cli: Cli) -> None:
    """The holder waits outside any act; what its predecessor left in doubt is a person's to settle."""
    resumed = AGENT.replace(
        'print("running", flush=True)', 'print("running", flush=True); sys.stdin.readline()'
    )
    with cli.started(sys.executable, "-c", AGENT) as process:
        first = LiveAgent(process)
        first.wait_for("running")
        first.wait_for("acting 1")
        first.kill()
    with cli.started(sys.executable, "-c", resumed) as process:
        second = LiveAgent(process)
        second.wait_for("running")
        assert cli.show()["effects"][0]["state"] == "in_doubt"
        assert (
            "applies it at its next beat"
            in cli.ok("settle", "1411", "1.1", "--happened", "--result", "5").err
        )
        second.go_on()
        second.wait_for("acting 2")
        shown = cli.show()
        assert (shown["beats"], shown["effects"][0]["result"]) == (1, 5)


def test_a_rewound_run_rests_until_a_person_accepts_it(cli: Cli) -> None:
    run = work(beats=2)
    lock = cli.root / "runs" / f"{run}.lock"
    data = lock.read_bytes()
    lock.write_bytes(b"%020d\n" % 10_000 + data[21:])
    answer = cli("resume", "1411")
    assert (answer.code, "was acknowledged and is gone" in answer.err) == (3, True)
    assert "--accept-rewind" in answer.err
    assert cli("doctor").code == 3
    cli.ok("resume", "1411", "--accept-rewind")
    events = [line for line in cli.ok("log", "1411").out.splitlines() if "accept_rewind" in line]
    assert len(events) == 1
    assert "tester" in events[0]
    work()
    assert cli.show()["status"] == "done"
