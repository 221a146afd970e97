"""`outlast ui`: one line on stdout, a page that answers, and a clean end."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import Cli, work
from tests.support.environment import TIMEOUT_S
from tests.support.processes import wait_for

ADDRESS = re.compile(r"http://(127\.0\.0\.1|[0-9.]+|\[[0-9a-f:]+\]):([0-9]+)/(\?token=[A-Za-z0-9_-]+)?\n")


@contextlib.contextmanager
def ui(cli: Cli, *words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command, and the address it printed."""
    with cli.started(sys.executable, "-m", "outlast", "ui", *words) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert ADDRESS.fullmatch(line), (line, process.stderr.read() if process.stderr and not line else "")
        yield process, line.strip()


def get(address: str) -> str:
    code, text = ask(address)
    assert code == 200, text
    return text


def ask(address: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Status and body, whatever they are."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as heard:
            return heard.status, heard.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_it_prints_where_it_is_and_shows_the_runs(cli: Cli) -> None:
    run = work()
    with ui(cli, "--port", "0") as (process, address):
        assert run in get(address)
        assert json.loads(get(f"{address}api/runs"))["total"] == 1
        process.send_signal(signal.SIGINT)
        assert ended(process) == (0, "", "Ctrl-C ends it\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_at_once_while_pages_listen(cli: Cli, number: signal.Signals) -> None:
    work()
    with ui(cli, "--port", "0") as (process, address), contextlib.ExitStack() as stack:
        for _ in range(5):
            stream = stack.enter_context(urllib.request.urlopen(f"{address}api/events", timeout=TIMEOUT_S))
            assert stream.readline() == b"retry: 1000\n"
        begun_s = time.monotonic()
        process.send_signal(number)
        code, _, err = ended(process)
        assert (code, err) == (0, "Ctrl-C ends it\n")
        assert time.monotonic() - begun_s < 20.0  # of a busy machine; by itself it takes a tenth of a second


def test_before_the_first_run_it_waits_for_one(cli: Cli) -> None:
    with ui(cli, "--port", "0") as (process, address):
        assert json.loads(get(f"{address}api/runs"))["total"] == 0
        assert not cli.root.exists()
        run = work()
        assert run in get(address)
        process.send_signal(signal.SIGTERM)
        assert f"no store at {cli.root} yet" in ended(process)[2]


def test_a_taken_port_is_named_and_the_next_one_used(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ui(cli, "--port", str(port)) as (process, address):
            used = int(address.rpartition(":")[2].strip("/"))
            assert port < used <= port + 20
            process.send_signal(signal.SIGTERM)
            assert re.search(rf"ports? {port}\b.*taken; using {used}\n", ended(process)[2])


def test_elsewhere_than_on_loopback_a_token_is_needed(cli: Cli) -> None:
    work()
    with ui(cli, "--host", "0.0.0.0", "--port", "0") as (_, address):
        assert "?token=" in address
        assert "0.0.0.0" not in address
        local = f"http://127.0.0.1:{ADDRESS.fullmatch(address + chr(10))[2]}/"  # type: ignore[index]
        assert ask(f"{local}api/runs")[0] == 401
        assert ask(f"{local}api/runs", Authorization=f"Bearer {address.rpartition('=')[2]}")[0] == 200


def test_a_token_of_ones_own_comes_from_a_private_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    assert "other users can read" in cli("ui", "--token-file", path).complaint
    path.chmod(0o600)
    with ui(cli, "--port", "0", "--token-file", str(path)) as (_, address):
        assert address.endswith("?token=0123456789abcdef")
    path.write_text("short")
    assert "at least 16" in cli("ui", "--token-file", path).complaint
    assert "cannot read the token file" in cli("ui", "--token-file", tmp_path / "none").complaint


def test_behind_a_proxy_the_address_is_that_of_the_proxy(cli: Cli) -> None:
    with cli.started(
        sys.executable, "-m", "outlast", "ui", "--port", "0", "--url", "https://runs.example.invalid"
    ) as process:
        assert process.stdout is not None
        assert re.fullmatch(r"https://runs\.example\.invalid/\?token=[\w-]+\n", process.stdout.readline())


def test_read_only_refuses_to_act(cli: Cli) -> None:
    run = work()
    with ui(cli, "--port", "0", "--read-only") as (_, address):
        code, said = ask(f"{address}api/runs/{run}/acts/cancel", b"{}")
        assert code == 403
        assert "--read-only" in said


def test_what_is_done_is_done_in_the_name_of_the_person(cli: Cli) -> None:
    run = work(beats=2)
    with ui(cli, "--port", "0") as (_, address):
        code, said = ask(f"{address}api/runs/{run}/acts/cancel", b"{}")
        assert (code, json.loads(said)["by"]) == (200, "tester via ui")
    assert cli.show(run)["status"] == "cancelled"


def test_without_a_screen_no_browser_is_opened_and_it_says_so(cli: Cli) -> None:
    with cli.started(
        "env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", "-u", "BROWSER",
        sys.executable, "-m", "outlast", "ui", "--open", "--port", "0",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert ADDRESS.fullmatch(process.stdout.readline())
        said = [process.stderr.readline() for _ in range(3)]
        assert "outlast cannot open a browser here; open the address yourself\n" in said


def test_a_browser_is_given_the_address(cli: Cli, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.new && mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    with cli.started(
        "env", f"BROWSER={browser}", sys.executable, "-m", "outlast", "ui", "--open", "--port", "0"
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        wait_for(seen.exists)
        assert seen.read_text() == address


def test_the_token_is_not_on_the_command_line_of_the_browser(cli: Cli, tmp_path: Path) -> None:
    """Every user of the machine can read that; what is there opens the page for its own user, once."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}.new && mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    with cli.started(
        "env", f"BROWSER={browser}", sys.executable, "-m", "outlast", "ui", "--open", "--port", "0", "--host", "0.0.0.0"
    ) as process:  # fmt: skip
        assert process.stdout is not None
        token = process.stdout.readline().strip().rpartition("=")[2]
        wait_for(seen.exists)
        address = seen.read_text().strip()
        assert address.startswith("http://127.0.0.1:")
        assert token not in address
        jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with jar.open(address, timeout=TIMEOUT_S) as heard:
            assert (heard.status, "token" in heard.url) == (200, False)
        assert ask(address)[0] == 401, "once"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "70000"), "--port must be 0 to 65535, got 70000"),
        (("--host", "no-such-host.invalid"), "no such host"),
        (("--host", "203.0.113.9", "--port", "0"), "cannot listen on 203.0.113.9"),
        (("--host", ""), "--host is empty"),
        (("--url", "javascript:alert(1)"), "--url must be the address of a site"),
        (("--token-file", ""), "--token-file is empty"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(cli: Cli, words: tuple[str, ...], said: str) -> None:
    assert said in cli("ui", *words).complaint
