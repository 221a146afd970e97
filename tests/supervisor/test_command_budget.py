"""Any command and its budget: time that ends it, the file it can read, money through a gateway, and more of it later."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.supervisor.supervised_command import Night, outlast
from tests.support import commands

ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
    "usage": {"input_tokens": 1000, "output_tokens": 100},
}  # fmt: skip
ASK = """
import json, os, sys, urllib.request
asked = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9}).encode(),
    {"content-type": "application/json", "x-api-key": "sk-ant-SECRETKEY123"},
)
try:
    answer = urllib.request.urlopen(asked)
    answer.read()  # who leaves before the end of an answer hides what it cost
    print(answer.status)
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.read().decode()}")
"""


class Api(http.server.BaseHTTPRequestHandler):
    """A model that always says the same, each time under another id."""

    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(ANSWER | {"id": f"msg_{type(self).asked}"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[str]:
    Api.asked = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(night: Night, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return commands.run(
        outlast("run", *words), cwd=night.work, env={**night.environ(), **variables}, capture_output=True, text=True,
        timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_when_its_time_is_over_it_is_saved_stopped_and_goes_on_with_more(night: Night) -> None:
    command = (
        "--task",
        "t",
        "--budget",
        "time=1s",
        "--",
        "sh",
        "-c",
        "[ -e work.txt ] || { echo x > work.txt; sleep 1000; }",
    )
    done = run(night, *command)
    assert done.returncode == 4, done.stderr
    shown = night.ask("show", "t")
    assert (shown["status"], shown["cause"]) == ("interrupted", "budget")
    assert 1_000 <= shown["budget"]["spent"]["time_ms"] < 60_000
    assert "x\n" in night.saved()
    again = run(night, *command)
    assert again.returncode == 4, "a resume does not get past it"
    more = commands.run(
        outlast("resume", "t", "--budget", "time=+1h"), cwd=night.work, env=night.environ(), capture_output=True, text=True,
    )  # fmt: skip
    assert more.returncode == 0, more.stderr
    assert night.ask("show", "t")["status"] == "done"


def test_a_command_reads_what_is_left(night: Night) -> None:
    script = 'cp "$OUTLAST_BUDGET_FILE" told.json'
    assert (
        run(
            night, "--task", "t", "--budget", "400k", "--budget", "beats=5", "--", "sh", "-c", script
        ).returncode
        == 0
    )
    told = json.loads((night.work / "told.json").read_text())
    assert told["limits"]["tokens"] == {"limit": 400_000, "spent": 0, "reserved": 0, "left": 400_000}
    assert told["limits"]["beats"]["left"] == 5
    assert (told["task"], told["wraps_up"]) == ("t", False)


def test_a_program_of_ones_own_is_metered_by_the_gateway_and_refused_when_nothing_is_left(
    night: Night, api: str
) -> None:
    (night.work / "ask.py").write_text(ASK)
    script = "for i in 1 2 3 4 5 6; do python3 ask.py || exit 9; done"
    command = (
        "--task",
        "t",
        "--budget",
        "usd=0.01",
        "--gateway",
        "--restarts",
        "1",
        "--",
        "sh",
        "-c",
        script,
    )
    done = run(night, *command, ANTHROPIC_BASE_URL=api)
    shown = night.ask("show", "t")
    spent = shown["budget"]["spent"]
    assert done.returncode == 4, done.stderr
    assert shown["cause"] == "budget"
    assert Api.asked == 3, "of 4,500 micro-dollars each"
    assert (spent["input"], spent["output"], spent["cost_microusd"]) == (3000, 300, 13_500)
    state = night.folder / "home"
    for path in [*state.rglob("*"), *night.work.rglob("*")]:
        assert not path.is_file() or path.name == "ask.py" or b"SECRETKEY123" not in path.read_bytes(), path


def test_a_price_that_nobody_knows_is_said(night: Night, api: str) -> None:
    (night.work / "ask.py").write_text(ASK.replace("claude-sonnet-4-5", "secret-model"))
    done = run(night, "--task", "t", "--gateway", "--", "python3", "ask.py", ANTHROPIC_BASE_URL=api)
    assert done.returncode == 0, done.stderr
    assert night.ask("show", "t")["budget"]["spent"]["cost_microusd"] == 4_500, "by the model that answered"
