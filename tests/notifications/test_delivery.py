"""A notice goes out once per cause, whatever is killed; in the quiet hours it waits, and comes as one with the others."""

import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from outlast.notifications import channel_health, delivery, outbox
from outlast.notifications.delivery import CUT_OFF, Delivery
from outlast.notifications.notice import Notice
from outlast.store.local import Local
from tests.notifications import far_side
from tests.notifications.far_side import Answered, Came, ChannelServer
from tests.notifications.notices import notice, own_settings
from tests.support import strace
from tests.support.environment import Isolated, skip_or_fail
from tests.support.processes import wait_for
from tests.support.strace import Drifted, Traced


@pytest.fixture
def server() -> Iterator[ChannelServer]:
    with far_side.far_side(far_side.ntfy) as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> Local:
    found = Local(tmp_path / "state")
    found.folder.mkdir()
    return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "notifications.again_s=0.01,notifications.quiet_look_s=0.05")


def deliver(local: Local) -> None:
    Delivery(local).carry()


def hours(begin: timedelta, end: timedelta) -> str:
    """Quiet hours around now, by this machine's clock."""
    now = datetime.now(UTC).astimezone()
    return f"{now + begin:%H:%M}-{now + end:%H:%M}"


QUIET = (timedelta(hours=-1), timedelta(hours=1))


def test_a_cause_is_told_once_also_by_another_process(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    for _ in range(3):
        outbox.add(local, notice())
        deliver(local)
    assert len(server.came) == 1
    assert outbox.waiting(local) == 0


def test_another_cause_kind_or_run_is_told_again(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    others = [notice(), notice(cause="budget"), notice(what="failed"), notice("12"), notice(about="q2")]
    assert [outbox.add(local, each) for each in others] == [True] * 5
    deliver(local)
    assert len(server.came) == 5


def test_what_an_earlier_version_told_is_not_told_again(local: Local) -> None:
    """Its mark has the same name."""
    import hashlib

    folder = local.run_folder("run1411")
    folder.mkdir(parents=True)
    (folder / f"noticed-{hashlib.blake2b(b'parked limit', digest_size=6).hexdigest()}").touch()
    assert not outbox.add(local, notice(what="parked", cause="limit"))


def test_what_failed_and_surely_did_not_arrive_is_sent_again(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    server.first = [lambda came: (503, "later", {}), lambda came: (429, "slower", {})]
    outbox.add(local, notice())
    deliver(local)
    assert len(server.came) == 3
    assert channel_health.dead(local) == ()


def test_a_dead_channel_is_on_record_and_the_others_get_theirs(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy="http://127.0.0.1:9/t", webhook=f"{server.url}/t")
    server.speaks = far_side.anything
    outbox.add(local, notice())
    deliver(local)
    assert len(server.came) == 1
    (dead,) = channel_health.dead(local)
    assert (dead.channel, dead.failures) == ("ntfy", 1)
    assert "127.0.0.1:9: Connection refused" in dead.problem
    own_settings(state, ntfy=f"{server.url}/t", webhook=f"{server.url}/t")
    outbox.add(local, notice("12"))
    deliver(local)
    assert channel_health.dead(local) == (), "it works again"


def instants(count: int, rng: random.Random, *, whole: bool) -> list[int]:
    """Every call, or some of a sample."""
    return list(range(1, count + 1)) if whole else sorted(rng.sample(range(1, count + 1), min(count, 5)))


def test_killed_at_every_instant_a_notice_arrives_once_or_is_said_not_to_be_known(
    tmp_path: Path, state: Isolated, server: ChannelServer, rng: random.Random, whole: bool
) -> None:
    if (reason := strace.available()) is not None:
        skip_or_fail(reason)
    own_settings(state, ntfy=f"{server.url}/t")

    def begin(name: str) -> tuple[Local, Traced]:
        local = Local(tmp_path / name)
        local.folder.mkdir()
        outbox.add(local, notice())
        server.came.clear()
        command = [sys.executable, "-P", "-m", "outlast.notifications.delivery", str(local.folder)]
        return local, Traced(command, local.folder, env=state.environ(PYTHONDONTWRITEBYTECODE="1"))

    _, traced = begin("dry")
    dry = traced.run()
    assert len(dry.calls) >= 6, dry.output
    assert len(server.came) == 1
    for nth in instants(len(dry.calls), rng, whole=whole):
        local, traced = begin(str(nth))
        try:
            broken = traced.kill_at(nth, dry)
        except Drifted:
            continue
        deliver(local)
        assert not outbox.add(local, notice()), f"{broken.hit}: it is told once"
        deliver(local)
        came, dead = len(server.came), channel_health.dead(local)
        assert came == 1 or (came == 0 and dead[0].problem == CUT_OFF), f"{broken.hit}: {came} came, {dead}"
        assert outbox.waiting(local) == 0


def test_what_was_cut_off_while_it_was_sent_is_said_and_not_repeated(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    """The far side has it when the process that sends it is killed."""
    own_settings(state, ntfy=f"{server.url}/t")
    outbox.add(local, notice())
    command = [sys.executable, "-P", "-m", "outlast.notifications.delivery", str(local.folder)]
    sending = list[subprocess.Popen[bytes]]()

    def killed(came: Came) -> Answered:
        sending[0].kill()
        return far_side.ntfy(came)

    server.first = [killed]
    sending.append(subprocess.Popen(command, env=state.environ()))
    sending[0].wait()
    assert len(server.came) == 1
    deliver(local)
    deliver(local)
    assert len(server.came) == 1
    (dead,) = channel_health.dead(local)
    assert dead.problem == CUT_OFF


def test_killed_while_it_is_put_on_its_way_a_notice_is_not_lost(
    tmp_path: Path, state: Isolated, server: ChannelServer, rng: random.Random, whole: bool
) -> None:
    if (reason := strace.available()) is not None:
        skip_or_fail(reason)
    own_settings(state, ntfy=f"{server.url}/t")
    script = (
        "import sys; from pathlib import Path; from outlast.notifications import outbox; from outlast.store.local import Local;"
        "from tests.notifications.notices import notice; outbox.add(Local(Path(sys.argv[1])), notice())"
    )

    def traced(name: str) -> tuple[Local, Traced]:
        local = Local(tmp_path / name)
        local.folder.mkdir()
        env = state.environ(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(Path(__file__).parents[2]))
        return local, Traced([sys.executable, "-c", script, str(local.folder)], local.folder, env=env)

    dry = traced("dry")[1].run()
    assert dry.returncode == 0, dry.output
    for nth in instants(len(dry.calls), rng, whole=whole):
        local, broken = traced(str(nth))
        try:
            broken.kill_at(nth, dry)
        except Drifted:
            continue
        server.came.clear()
        outbox.add(local, notice())  # the next attempt finds the same
        deliver(local)
        outbox.add(local, notice())
        deliver(local)
        assert len(server.came) == 1, f"killed at call {nth}"


def test_two_processes_at_once_send_it_once(local: Local, server: ChannelServer, state: Isolated) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    for number in range(5):
        outbox.add(local, notice(str(number)))
    command = [sys.executable, "-P", "-m", "outlast.notifications.delivery", str(local.folder)]
    both = [subprocess.Popen(command, env=state.environ()) for _ in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]
    assert sorted(decoded_task(came.headers["title"]) for came in server.came) == list("01234")


def decoded_task(title: str) -> str:
    return far_side.decoded(title).removeprefix("outlast: ")


def test_quiet_hours_hold_what_is_not_urgent_and_send_it_as_one(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy=f"{server.url}/t", quiet=hours(*QUIET), urgent=True)
    done = {"what": "done", "needs": "nothing"}
    for task in ("one", "two"):
        outbox.add(local, notice(task, line=f"{task} done", **done))
    outbox.add(local, notice("three"))
    delivery.start(local)  # it waits for the end: this very process would, too
    wait_for(lambda: len(server.came) == 1 or None, what="what is urgent")
    assert decoded_task(server.came[0].headers["title"]) == "three"
    wait_for(lambda: outbox.waiting(local) == 2 or None, what="its end")
    own_settings(state, ntfy=f"{server.url}/t")  # the quiet is over
    wait_for(lambda: len(server.came) == 2 or None, what="the summary")
    assert server.came[1].body.decode().splitlines()[:3] == [
        "2 notices of the quiet hours",
        "two done",
        "one done",
    ]
    wait_for(lambda: outbox.waiting(local) == 0 or None, what="the end of it")
    assert len(server.came) == 2


def test_without_urgent_everything_is_held(local: Local, server: ChannelServer, state: Isolated) -> None:
    own_settings(state, ntfy=f"{server.url}/t", quiet=hours(*QUIET))
    outbox.add(local, notice())
    Delivery(local)._send_all()
    assert server.came == []
    own_settings(state, ntfy=f"{server.url}/t")
    outbox.add(local, notice("next"))
    deliver(local)
    assert len(server.came) == 2, "one held alone comes as itself"


def test_more_notices_than_a_process_may_have_files_open_all_arrive(
    local: Local, server: ChannelServer, state: Isolated
) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    count = outbox.TAKEN_MAX + 20
    for number in range(count):
        outbox.add(local, notice(str(number)))
    command = [sys.executable, "-P", "-m", "outlast.notifications.delivery", str(local.folder)]
    process = subprocess.Popen(
        command,
        env=state.environ(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)),
    )
    assert process.wait(60) == 0
    assert sorted(decoded_task(came.headers["title"]) for came in server.came) == sorted(
        map(str, range(count))
    )
    assert outbox.waiting(local) == 0


def test_what_waits_keeps_nothing_else_from_being_taken(
    local: Local, server: ChannelServer, state: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TAKEN_MAX", 3)
    own_settings(state, ntfy=f"{server.url}/t", quiet=hours(*QUIET), urgent=True)
    for number in range(7):
        outbox.add(local, notice(str(number), what="done", needs="nothing"))
    for number in range(7, 14):
        outbox.add(local, notice(str(number)))
    Delivery(local)._send_all()
    assert len(server.came) == 7
    assert outbox.waiting(local) == 7


def test_a_damaged_notice_harms_no_other(local: Local, server: ChannelServer, state: Isolated) -> None:
    own_settings(state, ntfy=f"{server.url}/t")
    outbox.add(local, notice())
    (local.notices / "x-0.jsonl").write_text("{")
    deliver(local)
    assert len(server.came) == 1
    assert outbox.waiting(local) == 0


def test_a_command_gets_one_document_and_is_ended_in_time(
    local: Local, tmp_path: Path, state: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_TIMING", "notifications.command_s=0.3,notifications.again_s=0.01")
    own_settings(state, command=f"cat > {tmp_path}/got; exec sleep 1000")
    outbox.add(local, notice())
    deliver(local)
    document = json.loads((tmp_path / "got").read_text())
    assert (document["task"], document["command"]) == ("1411", "outlast settle 1411 3.1")
    (dead,) = channel_health.dead(local)
    assert "did not end" in dead.problem


def test_a_notice_fits_the_document_of_earlier_versions() -> None:
    earlier = {
        "what", "why", "run", "task", "project", "goal", "status", "cause", "standing", "needs", "beats", "workspace", "last_save",
        "at",
    }  # fmt: skip
    assert earlier <= set(Notice.__struct_fields__)
