"""With as many files open as it may have, the page says so, and takes nobody for somebody else."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.environment import ROOT

SCRIPT = """
import os, resource, sys
from pathlib import Path
from tests.support.processes import wait_for
from tests.web.server import Client, ui

resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with ui(Path(sys.argv[1])) as web:
    ask = f"GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1:{web.port}\\r\\n\\r\\n"
    before = len(os.listdir("/proc/self/fd"))
    web.ask("/healthz")
    wait_for(lambda: len(os.listdir("/proc/self/fd")) == before, 10)
    fillers = []
    try:
        while True:
            fillers.append(os.dup(0))
    except OSError:
        pass
    for _ in range(2):  # for both ends of one connection, and for nothing more
        os.close(fillers.pop())
    client = Client(web.port)
    heard = client.say(ask).hear()
    print(heard.status, heard.headers.get("retry-after"), heard.text)
    while fillers:
        os.close(fillers.pop())
    print(client.say(ask).hear().status)
    client.close()
"""


def test_who_cannot_be_told_for_want_of_room_is_not_taken_for_somebody_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "store")], capture_output=True, text=True, check=False, timeout=60,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("503 1 "), first
    assert "Too many open files" in done.stdout
    assert last == "200", "on the same connection, once there is room again"
