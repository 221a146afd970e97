"""How the commands of kimi-cli are read. Read from 1.51.0."""

import re

from outlast.agents.common import argv
from outlast.agents.common.grammar import Grammar
from outlast.agents.release import Names

TABLE = argv.Table(
    valued=frozenset(
        """--work-dir --add-dir --config --config-file --model --prompt --input-format --output-format --agent
        --agent-file --mcp-config-file --mcp-config --skills-dir --max-steps-per-turn --max-retries-per-step
        --max-ralph-iterations --skills-dir""".split()
    ),
    optional=frozenset(["--session"]),
    bare=frozenset(
        """--version --verbose --debug --continue --thinking --no-thinking --yolo --plan --afk --print --acp --wire
        --final-message-only --quiet --help""".split()
    ),
    aliases={
        "-V": "--version", "-w": "--work-dir", "-S": "--session", "-r": "--session", "--resume": "--session",
        "-C": "--continue", "-m": "--model", "-y": "--yolo", "--yes": "--yolo", "--auto-approve": "--yolo",
        "-p": "--prompt", "-c": "--prompt", "--command": "--prompt", "-h": "--help",
    },
)  # fmt: skip
SUBCOMMANDS = frozenset("login logout acp mcp info export plugin term vis web migrate".split())
ELSEWHERE = ("--version", "--help", "--acp", "--wire")
SESSION_FLAGS = ("--session", "--continue")
PRINTING = ("--print", "--quiet", "--output-format", "--input-format", "--final-message-only")
NAMES = Names(
    frozenset(["kimi", "kimi-cli"]),
    frozenset(["kimi-cli"]),
    frozenset(["kimi_cli"]),
    re.compile(r"/kimi_cli/__main__\.py$"),
)
GRAMMAR = Grammar(names=NAMES, table=TABLE, subcommands=SUBCOMMANDS, elsewhere=ELSEWHERE, shared_name="kimi")
