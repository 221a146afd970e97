"""Plain commands behind the gateway: calls side by side, cut by a crash, refused, at walls, without a price, and told."""

import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.supervised_command import Night, outlast, supervisor_of
from tests.support import commands
from tests.support.processes import wait_for

# Asks its model as it is told, and lives on afterwards; `ask` says whether it was answered.
CLIENT = """
import json, os, sys, time, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor
def ask(path="/chat/completions", model="gpt-5", **told):
    body = {"model": model, "messages": [{"role": "user", "content": "go"}], "tools": [{"type": "function"}], "told": told}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, json.dumps(body).encode())
    try:
        return urllib.request.urlopen(request, timeout=180).read() and True
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode(), file=sys.stderr)
        open("refused", "w").close()
        return False
def at_once(count, **told):
    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(lambda _: ask(**told), range(count)))
def until(found):
    end = time.monotonic() + 100
    while not found():
        if time.monotonic() > end: sys.exit("waited too long")
        time.sleep(0.02)
def left():
    return json.load(open(os.environ["OUTLAST_BUDGET_FILE"]))["limits"]["tokens"]["left"]
"""


class HeldModel(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Answers as each request tells it to; one that is to be held waits until the test lets it go."""

    daemon_threads, request_queue_size = True, 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.bodies: list[dict[str, Any]] = []
        self.held, self.let_go = 0, threading.Event()
        self.lock = threading.Lock()


class _Answering(http.server.BaseHTTPRequestHandler):
    server: HeldModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = body["told"]
        with self.server.lock:
            self.server.bodies.append(body)
            number = len(self.server.bodies)
            self.server.held += "hold" in told
        if "hold" in told:
            wait_for(
                lambda: self.server.held >= told["hold"] or self.server.let_go.is_set(), what="the others"
            )
            wait_for(lambda: os.path.exists(told.get("until", "/")), what="a refusal")
            if told.get("for_ever"):
                self.server.let_go.wait(60)
        usage = {"prompt_tokens": told.get("tokens", 1000) - 100, "completion_tokens": 100}
        said: dict[str, Any] = {
            "id": told.get("id", f"c{number}"),
            "model": body["model"],
            "choices": [],
            "usage": usage,
        }
        if "error" in told:
            said = {"error": told["error"]}
        data = json.dumps(said).encode()
        self.send_response(told.get("status", 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[HeldModel]:
    server = HeldModel()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()


def words(night: Night, script: str, *options: str) -> list[str]:
    (night.folder / "client.py").write_text(CLIENT + script)
    return ["--task", "t", "--gateway", "--restarts", "1", *options, "--", sys.executable, "-P", str(night.folder / "client.py")]  # fmt: skip


def environ(night: Night, model: HeldModel) -> dict[str, str]:
    return {**night.environ(), "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_port}/v1"}


def run(night: Night, model: HeldModel, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return again(night, model, "run", *words(night, script, *options))


def again(night: Night, model: HeldModel, *asked: str) -> "subprocess.CompletedProcess[str]":
    return commands.run(
        outlast(*asked), cwd=night.work, env=environ(night, model), capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def spent(night: Night) -> dict[str, Any]:
    found: dict[str, Any] = night.ask("show", "t")["budget"]["spent"]
    return found


# -- side by side --------------------------------------------------------------------------------------------------


def test_calls_at_once_that_fit_are_all_let_pass(night: Night, model: HeldModel) -> None:
    script = "ask(); sys.exit(at_once(8, hold=8) != 8)"
    done = run(night, model, script, "--budget", "12k")
    assert done.returncode == 0, done.stderr
    assert spent(night)["tokens"] == 9_000


def test_calls_at_once_that_do_not_fit_do_not_overshoot_by_more_than_two(
    night: Night, model: HeldModel
) -> None:
    script = "ask(); at_once(30, hold=4, until=os.path.abspath('refused')); sys.exit(1)"
    done = run(night, model, script, "--budget", "5k")
    assert done.returncode == 4, done.stderr
    assert len(model.bodies) <= 7
    assert "set aside for calls under way" in done.stderr


def test_one_that_is_refused_among_many_ends_nothing(night: Night, model: HeldModel) -> None:
    """The dear call before makes us careful; the last one is let pass, and the command ends well."""
    script = """
ask(tokens=5000)
at_once(12, hold=1, until=os.path.abspath("refused"), tokens=200)
sys.exit(not ask(tokens=200))
"""
    done = run(night, model, script, "--budget", "20k")
    assert done.returncode == 0, done.stderr
    assert "set aside for calls under way" in done.stderr
    assert night.ask("show", "t")["status"] == "done"


def test_a_crash_is_charged_every_call_under_way(night: Night, model: HeldModel) -> None:
    script = """
if not os.path.exists("begun"):
    open("begun", "w").close()
    ask(tokens=30_000)
    at_once(4, hold=4, for_ever=True)
"""
    process = night.start(*words(night, script, "--budget", "900k"), env=environ(night, model))
    wait_for(lambda: model.held == 4 or None, what="four calls under way")

    def set_aside() -> bool | None:
        events = [entry["event"] for entry in night.ask("log", "t")]
        return any(event["t"] == "spend_reserved" for event in events) or None

    wait_for(set_aside, what="what they may cost on record")
    os.kill(supervisor_of(process.pid), signal.SIGKILL)
    process.wait(180)
    model.let_go.set()
    done = again(night, model, "resume", "t")
    assert done.returncode == 0, done.stderr
    told = spent(night)
    assert 150_000 <= told["tokens"] <= 190_000, "one that was answered, and four as dear"
    assert told["estimated"]
    again(night, model, "resume", "t")
    assert spent(night)["tokens"] == told["tokens"], "never twice"


# -- counted -------------------------------------------------------------------------------------------------------


def test_an_id_that_comes_again_counts_again(night: Night, model: HeldModel) -> None:
    done = run(night, model, "for _ in range(9): ask(id='same') or sys.exit(9)", "--budget", "3k")
    assert done.returncode == 4, done.stderr
    assert (len(model.bodies), spent(night)["tokens"]) == (3, 3_000)


def test_a_model_without_a_price_stops_it_until_it_has_one(night: Night, model: HeldModel) -> None:
    script = """
ask(model="nobodys") or sys.exit(9)
if not os.path.exists("../priced"): time.sleep(100)
"""
    done = run(night, model, script, "--budget", "usd=1")
    assert done.returncode == 4, done.stderr
    assert "has no price" in done.stderr
    assert "prices.toml" in done.stderr
    assert "--budget" not in done.stderr.rpartition("has no price")[2]
    (night.folder / "priced").touch()
    own = own_prices(night)
    own.write_text('[model]\n"nobodys" = { input = 1, output = 1 }\n')
    done = again(night, model, "resume", "t")
    assert done.returncode == 0, done.stderr
    assert spent(night)["cost_microusd"] == 1_000, "of the second call; of the first nobody knows"


def test_a_model_without_a_price_is_said_once_where_other_limits_hold(night: Night, model: HeldModel) -> None:
    script = """
for _ in range(4): ask(model="nobodys") or sys.exit(9)
if not os.path.exists("../once"): open("../once", "w").close(); sys.exit(3)
"""
    done = run(night, model, script, "--budget", "usd=1", "--budget", "400k")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("has no price") == 1, done.stderr
    assert "'nobodys'" in done.stderr
    assert "prices.toml" in done.stderr
    done = again(night, model, "resume", "t")
    assert done.returncode == 0, done.stderr
    assert "has no price" not in done.stderr, "it was said before"
    assert (spent(night)["tokens"], spent(night)["cost_microusd"], spent(night)["unpriced"]) == (
        8_000,
        0,
        True,
    )


def test_where_the_price_is_known_money_is_counted_and_stops_it(night: Night, model: HeldModel) -> None:
    script = 'for _ in range(99): ask(model="claude-opus-5-5") or sys.exit(9)'
    done = run(night, model, script, "--budget", "usd=0.05")
    assert done.returncode == 4, done.stderr
    assert "$0.05 of $0.05" in done.stderr or "of $0.05" in done.stderr
    assert 40_000 <= spent(night)["cost_microusd"] <= 75_000
    assert not spent(night)["unpriced"]


def own_prices(night: Night) -> Path:
    variables = night.environ()
    folder = Path(variables.get("XDG_CONFIG_HOME") or Path(variables["HOME"], ".config")) / "outlast"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "prices.toml"


def test_prices_that_cannot_be_read_are_said_before_anything_is_spent(night: Night, model: HeldModel) -> None:
    own_prices(night).write_text('[model]\n"gpt-5" = { input = nan, output = 1 }\n')
    for options in (("--gateway",), ("--budget", "usd=1")):
        done = again(night, model, "run", "--task", "t", *options, "--", "true")
        assert done.returncode == 2
        assert "prices.toml" in done.stderr.splitlines()[0]


def test_a_list_spoilt_meanwhile_loses_no_tokens(night: Night, model: HeldModel) -> None:
    script = f"""
ask(); open({str(own_prices(night))!r}, "w").write("[garbage"); ask()
"""
    done = run(night, model, script, "--budget", "400k")
    assert done.returncode == 0, done.stderr
    assert (spent(night)["tokens"], spent(night)["unpriced"]) == (2_000, True)


def test_without_a_gateway_it_is_said_that_nothing_counts(night: Night, model: HeldModel) -> None:
    done = again(night, model, "run", "--task", "t", "--budget", "400k", "--", "true")
    assert done.returncode == 0
    assert "without --gateway" in done.stderr


# -- told ----------------------------------------------------------------------------------------------------------


def test_it_is_warned_on_the_way_to_its_model_and_reads_what_is_left(night: Night, model: HeldModel) -> None:
    script = """
for after, tokens in ((3_000, 7_000), (2_000, 1_000), (1_000, 1_000)):
    ask(tokens=tokens) or sys.exit(9)
    until(lambda: left() == after)
"""
    done = run(night, model, script, "--budget", "10k", "--reserve", "0")
    assert done.returncode == 0, done.stderr
    asked = [json.dumps(body["messages"]) for body in model.bodies]
    assert [number for number, text in enumerate(asked, 1) if "80% of the budget" in text] == [3]
    assert any(event["event"]["t"] == "warned" for event in night.ask("log", "t"))


def test_told_to_wrap_up_it_is_not_done(night: Night, model: HeldModel) -> None:
    script = """
for after, tokens in ((3_000, 7_000), (2_000, 1_000), (1_000, 1_000))[: int(os.environ["CALLS"])]:
    ask(tokens=tokens) or sys.exit(9)
    until(lambda: left() == after)
"""
    for task, calls, code in (("t", "3", 4), ("u", "2", 0)):
        asked = words(night, script, "--budget", "10k")
        asked[1] = task
        done = commands.run(
            outlast("run", *asked), cwd=night.work, env={**environ(night, model), "CALLS": calls}, capture_output=True,
            text=True, timeout=180, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
    assert any("Start nothing new" in json.dumps(body) for body in model.bodies)


# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_command_whose_last_call_was_refused_is_not_done(night: Night, model: HeldModel) -> None:
    done = run(night, model, "while ask(): pass", "--budget", "2k")
    assert done.returncode == 4, done.stderr
    assert night.ask("show", "t")["cause"] == "budget"


def test_at_a_wall_it_is_parked(night: Night, model: HeldModel) -> None:
    script = """
error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "resets_in_seconds": 7200}
sys.exit(0 if ask(status=429, error=error) else 1)
"""
    done = run(night, model, script)
    assert done.returncode == 5, done.stderr
    shown = night.ask("show", "t")
    assert (shown["status"], shown["cause"]) == ("parked", "quota")


def test_when_nothing_is_left_no_odd_path_leads_to_the_model(night: Night, model: HeldModel) -> None:
    script = """
ask(tokens=5000)
until(lambda: left() == 0)
sys.exit(any(ask(path) for path in ("/Chat/Completions", "/chat/completions;x", "/chat/completions%20", "/embeddings")))
"""
    done = run(night, model, script, "--budget", "5k", "--reserve", "0")
    assert done.returncode == 4, done.stderr
    assert len(model.bodies) == 1


# -- agents --------------------------------------------------------------------------------------------------------


def test_another_agent_and_a_later_login_are_checked_as_at_the_start(night: Night, model: HeldModel) -> None:
    """The stand-ins only fail: what counts is how they are started."""
    login = Path(night.environ()["HOME"], ".codex", "auth.json")
    login.parent.mkdir()
    login.write_text('{"OPENAI_API_KEY": "sk-test"}')
    folder = night.folder / "bin"
    folder.mkdir()
    for name in ("claude", "codex"):
        (folder / name).write_text(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo '2.1.325 (Claude Code)' || exit 1\n"
        )
        (folder / name).chmod(0o755)
    here = {**environ(night, model), "OPENAI_API_KEY": "sk-test", "ANTHROPIC_API_KEY": "sk-ant-test"}
    here["PATH"] = f"{folder}:{here['PATH']}"

    def asked(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return commands.run(
            outlast(*words), cwd=night.work, env=here | more, capture_output=True, text=True, timeout=180,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    first = asked(
        "run", "--task", "t", "--gateway", "--stall", "7", "--restarts", "1", "--", "claude", "-p", "go"
    )
    assert first.returncode not in (0, 2), first.stderr
    later = asked("resume", "t", ANTHROPIC_API_KEY="", CLAUDE_CODE_OAUTH_TOKEN="sk-ant-oat01-x")
    assert later.returncode == 2, later.stderr
    assert "subscription" in later.stderr
    other = asked("resume", "t", "--agent", "codex")
    assert other.returncode != 2, other.stderr
    events = [entry["event"] for entry in night.ask("log", "t")]
    launch = [event["launch"] for event in events if event["t"] == "attempt_started"][-1]
    assert '"gateway":true' in json.dumps(launch, separators=(",", ":"))
    assert '"stall":7' in json.dumps(launch, separators=(",", ":"))
