"""What an agent writes: byte for byte to our readers, harmless and bounded in its log, and never a wait for ever."""

import contextlib
import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as some

from outlast.core import secrets
from outlast.supervisor.output import sanitize
from outlast.supervisor.output.log import LAST_PARTS, Log
from outlast.supervisor.output.log_reader import attempts, parsed, read_log
from outlast.supervisor.output.relay import Relay
from outlast.supervisor.output.sanitize import Cleaner
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

AT = datetime(2026, 11, 2, 14, 2, 11, 300_000, tzinfo=UTC)
A40 = "a1B2c3D4e5" * 4
STEERING = {"Cc", "Zl", "Zp", "Cs"}


@dataclass
class Rig:
    """An agent's two pipes, a relay, and files that it relays to."""

    folder: Path
    relay: Relay
    log: Log
    out: int
    err: int

    def write(self, data: bytes, *, err: bool = False) -> None:
        os.write(self.err if err else self.out, data)
        self.relay.step()

    def hang_up(self) -> None:
        for fd in (self.out, self.err):
            os.close(fd)
        self.out = self.err = -1

    def said(self, name: str = "stdout") -> bytes:
        return (self.folder / name).read_bytes()

    def logged(self) -> list[str]:
        return list(read_log(self.log.path, follow=False, stop=lambda: True))

    def texts(self, stream: str = "out") -> list[str]:
        return [line.text for line in map(parsed, self.logged()) if line.stream == stream]


@contextlib.contextmanager
def rigged(
    folder: Path, *, to: tuple[int | None, int | None] | None = None, part_bytes: int = 4 << 20,
    queue_bytes: int = 12 << 20, now: Callable[[], datetime] = lambda: AT,
) -> Iterator[Rig]:  # fmt: skip
    out, err = os.pipe(), os.pipe()
    files = [
        os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for name in ("stdout", "stderr")
    ]
    log = Log(folder / "runs" / "kx3", 1, AT, part_bytes=part_bytes, queue_bytes=queue_bytes)
    relay = Relay(out[0], err[0], log, to=to or (files[0], files[1]), now=now)
    rig = Rig(folder, relay, log, out[1], err[1])
    try:
        yield rig
    finally:
        relay.close()
        for fd in (*files, *(fd for fd in (rig.out, rig.err) if fd >= 0)):
            os.close(fd)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rigged(tmp_path) as made:
        yield made


def cleaned(*pieces: bytes) -> str:
    """What the log has of some reads, without time and stream."""
    cleaner = Cleaner("out")
    text = "".join(cleaner.take(piece, AT) for piece in pieces) + cleaner.flush(AT, all_of_it=True)
    return "\n".join(parsed(line).text for line in text.splitlines())


# -- passing through ---------------------------------------------------------------------------------------------------


def test_both_streams_pass_byte_for_byte(rig: Rig, rng: random.Random) -> None:
    given_out, given_err = rng.randbytes(300_000), rng.randbytes(200_000)
    script = "import os,sys\nfor fd in (1, 2):\n data = open(sys.argv[fd],'rb').read()\n while data: data = data[os.write(fd, data):]"
    paths = [rig.folder / name for name in ("a", "b")]
    for path, data in zip(paths, (given_out, given_err), strict=True):
        path.write_bytes(data)
    with subprocess.Popen([sys.executable, "-c", script, *paths], stdout=rig.out, stderr=rig.err) as agent:
        rig.hang_up()
        pidfd = os.pidfd_open(agent.pid)
        rig.relay.run(pidfd)
        os.close(pidfd)
    assert rig.relay.drain(TIMEOUT_S)
    assert (rig.said(), rig.said("stderr")) == (given_out, given_err)


def test_the_tail_is_the_last_of_both_streams(rig: Rig) -> None:
    rig.write(b"one\n")
    rig.write(b"two\n", err=True)
    rig.write(b"three\n")
    assert rig.relay.tail(100) == b"one\ntwo\nthree\n"
    assert rig.relay.tail(7) == b"\nthree\n"
    rig.write(b"x" * 200_000)
    rig.write(b"the end")
    assert rig.relay.tail(10) == b"xxxthe end"


def test_the_log_and_its_folder_are_private(rig: Rig) -> None:
    old = os.umask(0)
    try:
        rig.write(b"x\n")
        rig.relay.close()
    finally:
        os.umask(old)
    assert rig.log.path.stat().st_mode & 0o777 == 0o600
    assert rig.log.folder.stat().st_mode & 0o777 == 0o700


def test_a_slow_reader_holds_back_the_agent_and_not_the_other_stream(tmp_path: Path) -> None:
    read, write = os.pipe()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    with rigged(tmp_path, to=(write, other)) as rig:
        os.set_blocking(rig.out, False)
        taken = 0
        try:
            while True:
                taken += os.write(rig.out, bytes(65536))
                while rig.relay.step() and select.select([rig.out], [], [], 0)[1] == [] and _moves(rig):
                    pass
        except BlockingIOError:
            pass
        assert taken < 8 << 20, "what a relay takes in is bounded"
        rig.write(b"still heard\n", err=True)
        assert (tmp_path / "other").read_bytes() == b"still heard\n"
        got = 0
        rig.hang_up()
        while rig.relay.is_open:
            got += len(os.read(read, 1 << 20))
            rig.relay.step()
        os.set_blocking(read, False)
        with contextlib.suppress(BlockingIOError):
            got += len(os.read(read, 1 << 20))
        assert got == taken
    for fd in (read, write, other):
        os.close(fd)


def _moves(rig: Rig) -> bool:
    """Whether the relay can go on at once."""
    asked = select.poll()
    for fd, events in rig.relay.wanted():
        asked.register(fd, events)
    return bool(asked.poll(0))


def _pipe() -> tuple[int, int]:
    return os.pipe()


def _terminal() -> tuple[int, int]:
    reader, writer = os.openpty()
    return reader, writer


def _socket() -> tuple[int, int]:
    reader, writer = socket.socketpair()
    return reader.detach(), writer.detach()


@pytest.mark.parametrize("make", [_pipe, _terminal, _socket], ids=["pipe", "terminal", "socket"])
def test_no_description_that_others_share_is_switched_to_non_blocking(
    make: Callable[[], tuple[int, int]], tmp_path: Path
) -> None:
    reader, writer = make()
    with rigged(tmp_path, to=(writer, writer)) as rig:
        rig.write(b"seen")
        assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
        assert os.read(reader, 100) == b"seen"
        os.set_blocking(rig.out, False)
        with contextlib.suppress(BlockingIOError):  # full at last, and nothing waited for a reader
            while True:
                os.write(rig.out, b"y" * 4096)
                rig.relay.step()
        assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
    for fd in (reader, writer):
        os.close(fd)


def test_a_pipe_that_cannot_be_opened_anew_is_written_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.supervisor.output.relay._opened_anew", lambda fd: -1)  # as after `sudo`
    read, write = os.pipe()
    with rigged(tmp_path, to=(write, None)) as rig:
        os.set_blocking(rig.out, False)
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += os.write(rig.out, b"z" * 4096)
                rig.relay.step()
        rig.hang_up()
        os.set_blocking(read, False)
        got = 0
        while rig.relay.step() or got < taken:
            with contextlib.suppress(BlockingIOError):
                got += len(os.read(read, 1 << 20))
        assert got == taken
    for fd in (read, write):
        os.close(fd)


def test_a_reader_that_goes_away_ends_the_agent_as_without_us(tmp_path: Path) -> None:
    read, write = os.pipe()
    with rigged(tmp_path, to=(write, None)) as rig:
        with subprocess.Popen(["yes"], stdout=rig.out, stderr=rig.err) as agent:
            rig.hang_up()
            pidfd = os.pidfd_open(agent.pid)
            os.close(read)
            rig.relay.run(pidfd)
            os.close(pidfd)
        assert agent.returncode == -signal.SIGPIPE
        assert rig.relay.drain(TIMEOUT_S)
        rig.relay.close()
        assert "stdout was closed: its reader went away" in rig.texts("---")
    os.close(write)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_what_is_left_in_the_pipes_is_drained(rig: Rig) -> None:
    os.write(rig.out, b"last words\n")
    os.write(rig.err, b"and more\n")
    rig.hang_up()
    assert rig.relay.drain(0.5)
    assert (rig.said(), rig.said("stderr")) == (b"last words\n", b"and more\n")


def test_a_grandchild_that_holds_the_pipe_is_not_waited_for(rig: Rig) -> None:
    os.write(rig.out, b"last words\n")
    assert not rig.relay.drain(0.05)
    assert rig.said() == b"last words\n"


def test_a_grandchild_that_writes_for_ever_is_not_waited_for(rig: Rig) -> None:
    with subprocess.Popen(["yes"], stdout=rig.out) as grandchild:
        try:
            assert not rig.relay.drain(0.05)
        finally:
            grandchild.kill()


def test_a_slow_reader_gets_all_unless_there_is_a_limit(tmp_path: Path) -> None:
    read, write = os.pipe()
    size = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    with rigged(tmp_path, to=(write, None)) as rig:
        data = bytes(size + 5000)
        os.set_blocking(rig.out, False)
        fcntl.fcntl(rig.out, fcntl.F_SETPIPE_SZ, 1 << 20)
        assert os.write(rig.out, data) == len(data)
        rig.hang_up()
        assert not rig.relay.drain(0.01, reader_limit_s=0.02)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(_read_all(read, len(data))))
        reader.start()
        assert rig.relay.drain(0.01)
        reader.join(TIMEOUT_S)
        assert got == [data]
    for fd in (read, write):
        os.close(fd)


def _read_all(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(fd, 1 << 16)
    return data


def test_an_idle_relay_waits_for_nothing_but_the_agent(rig: Rig) -> None:
    rig.write(b"a whole line\n")
    assert rig.relay.wait_s() is None
    rig.write(b"half a ")
    assert rig.relay.wait_s() == pytest.approx(2.0)


# -- the log -----------------------------------------------------------------------------------------------------------


def test_a_line_tells_time_and_stream(rig: Rig) -> None:
    rig.write(b"one\n")
    rig.write(b"two\n", err=True)
    rig.relay.close()
    stamp = sanitize.stamp(AT)
    assert rig.logged()[1:-1] == [f"{stamp} out| one", f"{stamp} err| two"]
    assert stamp.endswith(":11.3")


@given(some.lists(some.binary(max_size=60)))
def test_whatever_comes_nothing_in_the_log_steers_a_terminal(pieces: list[bytes]) -> None:
    cleaner = Cleaner("out")
    text = "".join(cleaner.take(piece, AT) for piece in pieces) + cleaner.flush(AT, all_of_it=True)
    assert not {char for char in text if unicodedata.category(char) in STEERING and char not in "\n\t"}
    assert text == "" or text.endswith("\n")


def test_every_control_character_is_shown_as_an_escape() -> None:
    for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0xFEFF, 0xE0001]:
        if chr(code) not in "\n\t":
            shown = cleaned(f"a{chr(code)}b\n".encode())
            assert shown == f"a{chr(code).encode('unicode_escape').decode()}b"
    assert cleaned(b"\xff\xc3(\xe2\x82\n") == "\\xff\\xc3(\\xe2\\x82"
    assert cleaned("tab\tgrün 🎉\n".encode()) == "tab\tgrün 🎉"


SECRETS = {
    "GitHub token": "ghp_" + A40, "GitLab token": "glpat-" + A40, "Anthropic key": "sk-ant-" + A40, "API key": "sk-" + A40,
    "Slack token": "xoxb-" + A40, "AWS key": "AKIA" + "A1B2C3D4E5F6G7H8", "Google key": "AIza" + A40[:35],
    "npm token": "npm_" + A40, "Hugging Face token": "hf_" + A40, "authorization": "Authorization: Basic " + A40,
    "bearer token": "bearer " + A40, "password in a URL": "https://ada:hunter22@example.org", "secret in a URL": "?api_key=" + A40,
    "private key": "-----BEGIN PRIVATE KEY----- " + A40, "password of a command": "curl -u ada:hunter22" + A40 + " x",
    "cookie": f"Cookie: sid={A40}", "secret of an option": f" --password {A40}",
    "password in a configuration": f'<add key="Password" value="{A40}" />', "Freemius key": f"'secret_key' => 'sk_{A40}'",
    "secret by its name": f"api_key={A40}", "key of a service": f"ALGOLIA_KEY={A40}", "password": f"DB_PASSWORD={A40}",
    "Stripe key": "sk_live_" + A40, "JSON web token": f"eyJ{A40}.eyJ{A40}.{A40}",
}  # fmt: skip


def test_every_rule_has_an_example_here() -> None:
    """Of the formats, which are one pattern, there are some; a secret of Kubernetes has many lines, and a form no text before it."""
    assert {rule.name for rule in secrets.RULES} - {"Kubernetes secret", "secret of a form"} <= set(SECRETS)


@pytest.mark.parametrize(("name", "secret"), SECRETS.items())
@pytest.mark.parametrize("before", ["", "\x1b[1;33m", "\r", "text\\n", "\x00", "\\u0041"])
def test_a_secret_is_masked_however_it_is_coloured_or_cut(name: str, secret: str, before: str) -> None:
    data = f"{before}{secret}\n".encode()
    for at in range(len(data)):
        shown = cleaned(data[:at], data[at:])
        assert f"[masked:{name}]" in shown
        assert A40[:20] not in shown


KEY = ["-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "", "MIIEow" + A40, A40, "ab==", "-----END RSA PRIVATE KEY-----"]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_key_that_is_printed_line_by_line_is_masked_to_its_end(end: str) -> None:
    shown = cleaned(*[f"{line}{end}".encode() for line in (*KEY, "the end")])
    assert "MIIE" not in shown
    assert A40 not in shown
    assert "ab==" not in shown
    assert shown.endswith("the end" + ("\\r" if end == "\r\n" else ""))


def test_the_word_for_a_key_does_not_hide_what_comes_after_it() -> None:
    pieces = [b"grep: -----BEGIN PRIVATE KEY-----\n", b"an ordinary line\n", b"another one\n"]
    assert cleaned(*pieces).splitlines()[1:] == ["an ordinary line", "another one"]


def test_a_line_without_end_is_shown_in_pieces_and_no_secret_is_cut() -> None:
    cleaner = Cleaner("out")
    data = b"word " * 20_000 + b"authorization: bearer "
    shown = cleaner.take(data, AT)
    assert len(shown) > 64 << 10
    assert "bearer" not in shown.lower()
    rest = cleaner.take(A40.encode() + b" the end\n", AT)
    assert A40 not in rest
    assert "out+ " in rest
    assert rest.endswith("the end\n")


def test_a_line_of_one_endless_word_is_bounded_and_keeps_its_characters_whole() -> None:
    cleaner = Cleaner("out")
    shown = "".join(
        cleaner.take("é".encode() * 30_000 + b"\xc3", AT) + cleaner.take(b"\xa9", AT) for _ in range(9)
    )
    shown += cleaner.flush(AT, all_of_it=True)
    assert "\\x" not in shown
    assert shown.count("é") == 9 * 30_001
    assert shown.count("\n") > 2


def test_the_beginning_of_a_line_is_shown_after_a_while_but_for_its_last_word(tmp_path: Path) -> None:
    clock = [AT]
    with rigged(tmp_path, now=lambda: clock[0]) as rig:
        rig.write(b"Continue? [y/N] ghp_")
        assert rig.texts() == []
        clock[0] += timedelta(seconds=3)
        rig.relay.step()
        assert rig.texts() == ["Continue? [y/N] "]
        rig.write(f"{A40}\n".encode())
        assert rig.texts() == ["Continue? [y/N] ", "[masked:GitHub token]"]
        assert [parsed(line).continues for line in rig.logged()][1:] == [False, True]


def test_a_long_log_keeps_its_beginning_and_its_end_and_says_what_is_missing(tmp_path: Path) -> None:
    with rigged(tmp_path, part_bytes=10_000) as rig:
        for number in range(2000):
            rig.write(f"line {number:06d} {'x' * 40}\n".encode())
        while rig.relay.wait_s() is not None:
            rig.relay.step()
        rig.relay.close()
        kept = list(rig.log.folder.iterdir())
        assert len(kept) == 1 + LAST_PARTS
        assert sum(path.stat().st_size for path in kept) <= 10_000 * (1 + LAST_PARTS)
        lines = rig.logged()
        gaps = [
            line for line in lines if line.endswith(" bytes of this log were not kept") and "---" not in line
        ]
        assert len(gaps) == 1
        missing = int(gaps[0].split()[0].replace(",", ""))
        whole = sum(len(line) + 1 for line in lines if line not in gaps)
        assert parsed(lines[-1]).text.endswith(f"; {missing:,} bytes of this log were not kept")
        assert whole + missing == pytest.approx(2000 * 70, rel=0.05)
        texts = rig.texts()
        assert (texts[0][:11], texts[-1][:11]) == ("line 000000", "line 001999")


def test_output_that_comes_too_fast_costs_the_middle_of_the_log_and_no_memory(tmp_path: Path) -> None:
    with rigged(tmp_path, part_bytes=4000, queue_bytes=5000) as rig:
        log = rig.log
        for number in range(1000):
            log.put("out", f"line {number:06d}\n".encode(), AT)
        assert log._queued <= 5000
        rig.relay.close()
        texts, ours = rig.texts(), rig.texts("---")
        assert (texts[0], texts[-1]) == ("line 000000", "line 000999")
        lost = next(text for text in ours if "came too fast" in text)
        assert int(lost.split()[0].replace(",", "")) == (1000 - len(texts)) * 12


def test_a_log_that_cannot_be_written_does_not_stop_the_output(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "kx3").write_text("in the way")
    with rigged(tmp_path) as rig:
        rig.write(b"all the same\n")
        rig.relay.close()
        assert rig.said() == b"all the same\n"
        assert rig.log.failed


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "kx3"
    folder.mkdir(parents=True)
    (folder / "attempt-1.log").symlink_to(tmp_path / "elsewhere")
    with rigged(tmp_path) as rig:
        rig.write(b"x\n")
        assert rig.log.failed
        assert not (tmp_path / "elsewhere").exists()


# -- reading it back ---------------------------------------------------------------------------------------------------


class Follower:
    """A thread that follows a log."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(path,))
        self._thread.start()

    def _read(self, path: Path) -> None:
        for line in read_log(path, follow=True, stop=self.stopped.is_set):
            self.lines.append(line)

    def wait_for(self, text: str) -> None:
        wait_for(lambda: any(text in line for line in self.lines), what=text)

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def test_a_follower_sees_what_comes_and_goes_on_to_the_next_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    follower = Follower(folder / "attempt-1.log")
    try:
        log = Log(folder, 1, AT)
        log.put("out", b"first\n", AT)
        follower.wait_for("first")
        log.put("out", b"second\n", AT)
        follower.wait_for("second")
        log.close(AT)
        later = Log(folder, 2, AT)
        later.put("err", b"of the next\n", AT)
        follower.wait_for("of the next")
        later.close(AT)
    finally:
        follower.stop()
    assert [line for line in follower.lines if "---" not in line] == [
        f"{sanitize.stamp(AT)} {text}" for text in ("out| first", "out| second", "err| of the next")
    ]
    assert attempts(folder) == [1, 2]


def test_a_follower_survives_that_the_log_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "attempt-1.log"
    path.write_text("a long line before\n")
    follower = Follower(path)
    try:
        follower.wait_for("before")
        path.write_text("after\n")
        follower.wait_for("after")
    finally:
        follower.stop()


def test_a_follower_sees_every_line_across_parts(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    log = Log(folder, 1, AT, part_bytes=2000)
    follower = Follower(log.path)
    try:
        for number in range(60):
            log.put("out", f"line {number}\n".encode(), AT)
            while log.waits:
                log.work()
            follower.wait_for(f"line {number}")
    finally:
        follower.stop()
    log.close(AT)
    assert [parsed(line).text for line in follower.lines[1:]] == [f"line {number}" for number in range(60)]


def test_a_half_line_of_a_killed_writer_is_shown_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "attempt-1.log"
    path.write_bytes(b"14:02:11.3 out| whole\n14:02:11.4 out| ha")
    assert [parsed(line).text for line in read_log(path, follow=False, stop=lambda: True)] == ["whole", "ha"]
