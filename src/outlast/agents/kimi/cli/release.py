"""The releases of kimi-cli. Newer ones than the last that works say farewell and exit 0, whatever they are asked."""

from outlast.agents.kimi.cli.grammar import NAMES
from outlast.agents.release import Caps, EmptyReleases, OwnTools, Release

NAME = "kimi-cli"
LAST = "1.51.0"  # the last release that does anything
# A server's tool is called as the server calls it.
OWN_TOOLS = OwnTools(
    frozenset(
        """Agent AskUserQuestion CreateSubagent EnterPlanMode ExitPlanMode FetchURL Glob Grep MultiTask ReadFile ReadMediaFile
        SearchWeb SendDMail SetTodoList Shell StrReplaceFile Task TaskList TaskOutput TaskStop Think WriteFile""".split()
    ),
    prefix="mcp__kimi-cli__",
)
RELEASE = Release(
    name=NAME,
    names=NAMES,
    caps=Caps(
        intent=("hooks", "shims", "transcript"),
        resume=True,
        preassigned_session=True,
        mends=True,
        response_ids=True,
    ),
    oldest=(1, 40),
    newest=(1, 51),
    upgrade=f"`uv tool install kimi-cli=={LAST}`",
    distribution=NAME,
    empty=EmptyReleases(
        (1, 52),
        "is an empty farewell release that exits 0 without doing anything: "
        f"`uv tool install kimi-cli=={LAST}`, or Kimi Code: `npm install -g @moonshot-ai/kimi-code`",
    ),
    own_tools=OWN_TOOLS,
)
