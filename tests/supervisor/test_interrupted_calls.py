"""Calls of scripts that are cut off: by a kill of their own side, by our own stopping, by readers and disks that give up."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.supervisor.output import streams
from outlast.supervisor.person import Person
from outlast.supervisor.socket import connection, wire
from tests.supervisor.host import Host
from tests.supervisor.scripted_agent import Scripted
from tests.supervisor.supervised_command import Night, outlast
from tests.supervisor.test_steps import FAILS_ONCE, environ, lines, script
from tests.support import commands
from tests.support.environment import TIMEOUT_S, need_root, need_tool
from tests.support.processes import wait_for

# Begins, waits to be let go, and only then does something that a witness sees.
ACT = "echo $$ >> $W/began; until [ -e $W/go ]; do sleep 0.01; done; echo did >> $W/witness"
# The first one kills its own side, as early as anybody can. It may be stopped for that before it has begun.
KILLS = "if mkdir $W/killed 2>/dev/null; then kill -9 $PPID; else : > $W/second; fi"
TWICE = """
(call) & p=$!
until [ "$(cat $W/began 2>/dev/null | wc -l)" = 1 ]; do sleep 0.01; done
kill -9 $p; wait $p
(call) & p=$!
until [ "$(cat $W/began | wc -l)" = 2 ]; do sleep 0.01; done
touch $W/go
wait $p; echo $? >> $W/codes
"""
KINDS = {
    "effect": f"exec outlast effect post --probe '[ -s $W/witness ]' -- sh -c '{ACT}'",
    "step": f"exec outlast step post -- sh -c '{ACT}'",
    "step without a mark": f'exec outlast step post -- env -i "W=$W" "PATH=$PATH" sh -c \'{ACT}\'',
    "effect that left its session": f"exec outlast effect post --probe '[ -s $W/witness ]' -- setsid -w sh -c '{ACT}'",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_whose_own_side_was_killed_is_not_repeated_beside_its_command(night: Night, kind: str) -> None:
    done = script(night, "call() { " + KINDS[kind] + "; }\n" + TWICE)
    assert lines(night.folder / "codes") == ["0"], done.stderr
    assert lines(night.folder / "witness") == ["did"]
    first, second = lines(night.folder / "began")
    assert first != second
    assert done.returncode == 0, done.stderr


def test_a_call_whose_command_killed_its_own_side_is_not_repeated_beside_it(night: Night) -> None:
    call = f"exec outlast step post -- env -i W=$W PATH=$PATH sh -c '{KILLS}; {ACT}'"
    done = script(
        night,
        f"call() {{ {call}; }}\n"
        "(call) & wait $!\n"
        "(call) & p=$!\n"
        "until [ -e $W/second ]; do sleep 0.01; done\n"
        "touch $W/go; wait $p; echo $? >> $W/codes\n",
    )
    assert lines(night.folder / "codes") == ["0"], done.stderr
    assert lines(night.folder / "witness") == ["did"]
    assert done.returncode == 0, done.stderr


# A script's side that dies when its command is about to begin; the command then asks whether it may.
DIES_EARLY = """
import os, time
from outlast.supervisor.socket.connection import Gone, connect
from outlast.supervisor.socket.wire import Call, Started
there = connect(os.environ["OUTLAST_SOCKET"])
there.send(Call(kind="step", name="s", words=("true",), attempt=os.environ["OUTLAST_ATTEMPT"]))
there.receive()
me = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == me:
    time.sleep(0.01)
there.send(Started(pid=os.getpid()))
try:
    there.receive()
    told = "may begin"
except Gone:
    told = "may not"
with open(os.environ["W"] + "/told", "w") as file:
    file.write(told)
"""


def test_a_command_whose_own_side_is_dead_before_it_began_does_not_begin(night: Night) -> None:
    (night.folder / "early.py").write_text(DIES_EARLY)
    done = script(night, f"{sys.executable} $W/early.py; until [ -s $W/told ]; do sleep 0.01; done")
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "told") == ["may not"]


@contextlib.contextmanager
def ordered(night: Night, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], connection.Connection]]:
    """The script's side of a step whose supervisor we are: it was just told to run its command."""
    path = night.folder / "socket"
    variables = environ(night) | {"OUTLAST_SOCKET": str(path), "OUTLAST_ATTEMPT": "r.1"}
    with connection.listen(path) as listening:
        client = commands.start(outlast("step", "s", "--", *words), env=variables, start_new_session=True)
        with client, listening.accept()[0] as sock:
            there = connection.Connection(sock)
            assert isinstance(there.receive(limit_s=TIMEOUT_S), wire.Call)
            there.send(wire.Order(do="run", call="r.1.1"))
            yield client, there


def test_a_command_that_nobody_answered_does_not_begin(night: Night) -> None:
    with ordered(night, "touch", str(night.folder / "began")) as (client, there):
        assert isinstance(there.receive(limit_s=TIMEOUT_S), wire.Started)
        there.close()
        assert client.wait(TIMEOUT_S) == 125
    assert not (night.folder / "began").exists()


def test_a_command_that_is_refused_does_not_begin(night: Night) -> None:
    with ordered(night, "touch", str(night.folder / "began")) as (client, there):
        assert isinstance(there.receive(limit_s=TIMEOUT_S), wire.Started)
        there.send(wire.Order(do="refuse", exit_code=125))
        there.close()
        assert client.wait(TIMEOUT_S) == 125
    assert not (night.folder / "began").exists()


def test_an_answer_that_its_command_did_not_live_to_read_is_not_taken_for_an_order(night: Night) -> None:
    with ordered(night, "true") as (client, there):
        started = there.receive(limit_s=TIMEOUT_S)
        assert isinstance(started, wire.Started)
        os.kill(started.pid, signal.SIGKILL)
        report = there.receive(limit_s=TIMEOUT_S)
        assert isinstance(report, wire.Report)
        assert report.killed
        there.send(wire.Verdict(allowed=True))
        there.send(wire.Order(do="done", exit_code=137))
        assert client.wait(TIMEOUT_S) == 137


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_a_signal_to_all_while_a_command_begins_ends_it(night: Night, number: signal.Signals) -> None:
    """At every instant from its first on, however often one tries."""
    for _ in range(8):
        with ordered(night, "sleep", "30") as (client, there):
            children = Path(f"/proc/{client.pid}/task/{client.pid}/children")
            wait_for(lambda at=children: at.read_text(), what="its child")
            os.killpg(client.pid, number)
            report = there.receive(limit_s=TIMEOUT_S)
            if isinstance(report, wire.Started):
                report = there.receive(limit_s=TIMEOUT_S)
            assert isinstance(report, wire.Report)
            assert report.killed
            assert report.stopped
            there.send(wire.Order(do="done", exit_code=128 + number))
            assert client.wait(TIMEOUT_S) == 128 + number


def test_two_calls_of_one_name_at_once_are_refused(night: Night) -> None:
    text = f"""
outlast step post -- sh -c '{ACT}' & p=$!
until [ -e $W/began ]; do sleep 0.01; done
outlast step post -- true; echo $? >> $W/codes
touch $W/go; wait $p; echo $? >> $W/codes
"""
    done = script(night, text)
    assert lines(night.folder / "codes") == ["125", "0"], done.stderr
    assert b"two calls of" in done.stderr


# -- what counts as a result ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [137, 255])
def test_an_exit_code_above_128_is_a_result_like_any_other(night: Night, code: int) -> None:
    text = f"outlast step s -- sh -c 'echo x >> $W/ran; exit {code}'; echo $? >> $W/codes\n"
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x"]
    assert lines(night.folder / "codes") == [str(code)] * 2


@pytest.mark.parametrize("end", ["kill -9 \\$\\$", "exec $W/no-such-program"])
def test_a_call_without_a_result_is_the_same_call_after_a_restart(night: Night, end: str) -> None:
    (night.folder / "no-such-program").write_text("#!/no/such/shell\n")
    (night.folder / "no-such-program").chmod(0o755)
    text = f"""
for i in 1 2 3; do
    if [ $i = 1 ] && [ ! -e $W/second ]; then word="{end}"; else word=; fi
    export word
    outlast step work -- sh -c 'eval "$1"; [ -n "$1" ] || echo $2 >> $W/ran; [ -z "$1" ]' sh "$word" $i || true
done
touch $W/second
"""
    if "exec" in end:
        text = text.replace("""sh -c 'eval "$1"; """, """${word:+$W/no-such-program} sh -c '""")
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["2", "3", "1"]


def test_a_name_used_twice_with_other_words_than_before_is_refused_and_nothing_is_run(night: Night) -> None:
    text = """
echo "$(ls $W | grep -c shifted)" > $W/new; touch $W/shifted
[ "$(cat $W/new)" = 0 ] && items="b c" || items="a b c"
for i in $items; do outlast step conv -- sh -c "echo $i >> $W/ran"; echo $? >> $W/codes; done
"""
    done = script(night, text + FAILS_ONCE)
    assert lines(night.folder / "ran") == ["b", "c"]
    assert lines(night.folder / "codes") == ["0", "0", "125", "0", "0"]
    assert b"call 1 of step 'conv' was recorded with another command; nothing was run" in done.stderr
    assert b'outlast step "conv $ITEM"' in done.stderr


def test_a_name_used_once_is_replayed_whatever_its_words_are_now(night: Night) -> None:
    done = script(night, 'outlast step s -- sh -c "echo said # $(ls $W | grep -c failed)$$"\n' + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"said\nsaid\n"


# -- our own stopping -------------------------------------------------------------------------------------------------

POLITE = "trap 'echo bye; exit 0' TERM; echo x >> $W/ran; [ ! -e $W/stopped ] || exit 0; touch $W/ready; while :; do sleep 0.01; done"


def stopped_run(night: Night, text: str) -> None:
    """Start a script, stop it with a TERM to `outlast run` when it is ready, and note that."""
    (night.folder / "script.sh").write_text(text)
    process = night.start("--task", "t", "--", "bash", str(night.folder / "script.sh"), env=environ(night))
    wait_for(lambda: (night.folder / "ready").exists() or None, what="the command")
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    (night.folder / "stopped").touch()


def test_a_step_that_answers_our_term_with_0_is_not_done(night: Night) -> None:
    text = f'outlast step s -- sh -c "{POLITE}"\n'.replace("$W", str(night.folder))
    stopped_run(night, text)
    done = script(night, text)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x", "x"]


def test_an_effect_that_answers_our_term_with_0_is_in_doubt(night: Night) -> None:
    text = f'outlast effect e -- sh -c "{POLITE}"\n'.replace("$W", str(night.folder))
    stopped_run(night, text)
    assert script(night, text).returncode == 3
    assert lines(night.folder / "ran") == ["x"]
    assert [effect["state"] for effect in night.ask("effects", "t")] == ["in_doubt"]


def test_a_probe_that_is_stopped_has_not_said_no(night: Night) -> None:
    probe = "trap 'exit 1' TERM; touch $W/ready; [ ! -e $W/stopped ] || exit 0; while :; do sleep 0.01; done"
    probe = probe.replace("$W", str(night.folder))
    text = f"outlast effect e --probe \"{probe}\" -- sh -c 'echo x >> $W/ran; exit 9'\n"
    stopped_run(night, text)
    done = script(night, text)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "ran") == ["x"]


# -- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["| head -1", "> /dev/full", ">&-", "2>&- >&-"])
def test_a_replay_ends_as_the_first_time_whoever_reads_it(night: Night, to: str) -> None:
    text = f'outlast step list -- sh -c "seq 100000; echo x >> $W/ran" {to}; echo ${{PIPESTATUS[0]}} >> $W/codes\n'
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "codes") == ["0", "0"]
    assert lines(night.folder / "ran") == ["x"]


def test_an_effect_that_is_given_up_ends_with_the_code_of_its_command_when_that_was_run(night: Night) -> None:
    text = "outlast effect e --unknown give-up -- sh -c 'echo x >> $W/ran; exit 3'; echo $? >> $W/codes\n"
    done = script(night, text + FAILS_ONCE)
    assert done.returncode == 0, done.stderr
    assert lines(night.folder / "codes") == ["3", "0"]
    assert lines(night.folder / "ran") == ["x"]


# -- standard input ---------------------------------------------------------------------------------------------------


def test_input_that_cannot_be_kept_reaches_the_command_whole_and_that_is_said_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    (tmp_path / "given").write_bytes(data)
    said: list[str] = []
    with open(tmp_path / "given", "rb") as given, open(tmp_path / "got", "wb") as got:
        streams.Feed(given.fileno(), os.dup(got.fileno()), Path("/dev/full"), Person(said.append)).work()
    assert (tmp_path / "got").read_bytes() == data
    assert said == [
        "standard input is kept up to 0 bytes: No space left on device; the command gets all of it"
    ]


def test_input_is_not_read_on_when_the_command_has_closed_its_end(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open("/dev/zero", "rb") as endless:
        streams.Feed(endless.fileno(), writes, tmp_path / "stdin", Person(print)).work()
    assert (tmp_path / "stdin").stat().st_size <= 1 << 20


# -- disks ------------------------------------------------------------------------------------------------------------

# The state folder on a small disk of its own, seen by nobody else.
SMALL = 'mount -t tmpfs -o size=24m none "$1" && shift && exec "$@"'
FILLED = """
outlast step first -- true
head -c {left} /dev/zero > "$XDG_STATE_HOME/spare"
cat /dev/zero > "$XDG_STATE_HOME/fill" 2> /dev/null
rm "$XDG_STATE_HOME/spare"
trap '' TERM # the attempt ends at once: first it is to be seen how the step did
outlast step second -- sh -c '{act}' > $W/out; echo $? >> $W/codes
trap - TERM
{after}
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("left", "act", "ran", "after"),
    [
        (0, "echo x >> $W/ran", [], "sleep 1000"),
        (0, "echo x >> $W/ran", [], "exit 1"),
        (1_000_000, "echo x >> $W/ran; head -c 9000000 /dev/zero", ["x"], "sleep 1000"),
    ],
    ids=["nothing is begun", "nor is it started again", "its output has no room"],
)
def test_a_full_disk_refuses_the_step_and_ends_the_attempt(
    night: Night, left: int, act: str, ran: list[str], after: str
) -> None:
    need_root()
    (night.folder / "script.sh").write_text(FILLED.format(left=left, act=act, after=after))
    words = outlast("run", "--task", "t", "--", "bash", str(night.folder / "script.sh"))
    inside = [
        need_tool("unshare"),
        "--mount",
        "sh",
        "-c",
        SMALL,
        "sh",
        str(night.isolated.state_home),
        *words,
    ]
    done = subprocess.run(
        inside, cwd=night.work, env=environ(night), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert lines(night.folder / "codes") == ["125"], done.stderr
    assert lines(night.folder / "ran") == ran
    assert done.returncode == 3, done.stderr
    assert re.search(rb"(is full|cannot be kept).*: saving and stopping", done.stderr)
    assert b"bug" not in done.stderr


# The agent's first call fills the disk of the state folder, but for so much; its second call is local.
FILLING = 'head -c {left} /dev/zero > "{state}/spare"; cat /dev/zero > "{state}/fill" 2> /dev/null; rm "{state}/spare"; true'


@pytest.mark.parametrize("left", [0, 4_096, 40_000, 300_000])
def test_a_state_disk_that_is_full_under_an_agent_ends_the_attempt_with_a_hint(host: Host, left: int) -> None:
    need_root()
    agent, state = Scripted(host), host.isolated.state_home
    agent.says(FILLING.format(left=left, state=state), *["head -c 200000 /dev/zero | tr '\\0' x"] * 4)
    words = outlast("run", "--task", "t", "--", str(agent.program), "-p", "do it")
    done = subprocess.run(
        [need_tool("unshare"), "--mount", "sh", "-c", SMALL, "sh", str(state), *words],
        cwd=agent.work, env=host.environ(), capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode == 3, said
    assert re.search(r"is full.*make room", said, re.DOTALL), said
    assert "bug" not in said
    assert "unexpected" not in said
