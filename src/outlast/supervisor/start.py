"""Starting a supervisor: from a command line, or from the record of an earlier start. Bad requests are refused first."""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from outlast import settings
from outlast.agents import KnownAgent, registry
from outlast.agents.common import versions
from outlast.core import budget as budgets
from outlast.core.statuses import CLOSED
from outlast.core.values import Allowance, Usage
from outlast.errors import RunRefused, UsageError, WorkspaceRefused
from outlast.processes.programs import CannotStart, find_program
from outlast.runs import reader
from outlast.runs.engine import stores
from outlast.runs.engine.run import RunEngine
from outlast.runs.opening import identity
from outlast.runs.opening.entry import terms_of
from outlast.runs.opening.terms import Terms, budget_of
from outlast.store.protocol import RunFilter, Store, Summary
from outlast.supervisor.agent.calls import outward
from outlast.supervisor.budget import check as budget_check
from outlast.supervisor.chronicle.options import ChronicleOptions
from outlast.supervisor.client.around import run_around
from outlast.supervisor.guardian.link import Link
from outlast.supervisor.guardian.workspace_lock import Kind, occupant, occupied
from outlast.supervisor.launch import approvals, environment, launch as supervisor_launch
from outlast.supervisor.launch.last_launch import known_agent, launch_of
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.launch.run import supervised_run
from outlast.supervisor.person import Person
from outlast.supervisor.script import pid_watch
from outlast.supervisor.supervisor import Supervisor
from outlast.workspace import repo
from outlast.workspace.capture.saver import Saver
from outlast.workspace.repo import workspace_around

NAMED_MAX = 64
LEVELS_MAX = 16  # of runs inside of runs
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A person's request; None and empty where the person left it open."""

    words: tuple[str, ...]
    task: str = ""
    issue: str = ""
    goal: str | None = None
    done: tuple[str, ...] | None = None
    invariants: tuple[str, ...] | None = None
    budget: tuple[str, ...] | None = None
    until: str | None = None
    reserve: str | None = None
    workspace: str | None = None
    cwd: str = ""
    store: str | None = None
    project: str | None = None
    files: str = "keep"
    rounds: int = 5
    restarts: int = 50
    parks: int = 6
    stall: int = 30
    share: bool = False
    amend: bool = False
    again: bool = False
    moved: bool = False
    headless: bool = False
    plain: bool = False
    guard: bool = False
    accept_unknown: bool = False
    gateway: str | None = None
    approve: str | None = None
    approve_within: str | None = None
    setup: str = ""
    as_step: bool = (
        False  # of the script around: done once in that run, whatever other runs of the script did
    )


def check(request: RunRequest) -> None:
    """Refuse what makes no sense wherever it is to work, before anything is made for it. Raises OutlastError."""
    if not request.words:
        raise UsageError("there is no command to run", hint="outlast run --task 1411 -- CMD …")
    _terms(request, None)
    if "/" not in request.words[0] or os.path.isabs(request.words[0]):
        program_of(request.words[0], "/")


def start(request: RunRequest, link: Link, person: Person, options: ChronicleOptions | None = None) -> int:
    """Carry a command that a person typed; return the exit code. Raises OutlastError if it is refused.

    The start restores a missing workspace from its save, and perhaps the program with it.
    """
    check(request)
    cwd = Path(request.cwd or Path.cwd())
    if not cwd.is_dir() and request.workspace != str(cwd):
        raise UsageError(f"the folder {cwd} is not there", hint="make it, or work in another")
    variables = inherited()
    program = (
        program_of(request.words[0], str(cwd))
        if cwd.is_dir()
        else _program_to_come(request.words[0], str(cwd))
    )
    folder = _workspace(request, cwd, person)
    launch = supervisor_launch.recorded(
        request.words, program, cwd, variables, issue=request.issue, rounds=request.rounds, restarts=request.restarts,
        parks=request.parks, stall=request.stall, share=request.share, setup=request.setup, plain=request.plain,
        guard=_is_guarded(request, folder or cwd), accept_unknown=request.accept_unknown,
    )  # fmt: skip
    here = settings.load(folder or cwd)
    launch = approvals.recorded(launch, request.approve, request.approve_within, here, outward.known_kinds())
    agent = known_agent(launch)
    if agent is not None:
        check_version(agent, request.words, program, person)
        variables |= registry.env_assignments(request.words)
    elif not request.plain and (hidden := registry.hidden_agent(request.words)):
        how = "guarded by shims alone" if launch.guard else "not guarded"
        person.say(
            f"{hidden[0]} below {hidden[1]} is run as a plain command: its calls are {how}; give it directly"
        )
    headless = request.headless or (agent is not None and agent.cli.read(request.words).headless)
    launch = msgspec.structs.replace(launch, interactive=not headless and os.isatty(0) and os.isatty(1))
    if budget_check.by_gateway(request.gateway, agent, launch, variables, person):
        launch = msgspec.structs.replace(launch, gateway=True, gateway_yes=request.gateway == "yes")
    terms = _terms(request, folder, cwd)
    is_auto = budget_check.is_auto(request.budget)
    if not is_auto:  # before a store is made: what is refused changes nothing
        budget_check.check(terms.budget, agent, launch, variables, person)
    _check_classes(launch, variables)
    terms, launch = _identified(terms, launch)
    if is_auto:
        terms = _by_experience(terms, agent, launch, variables, person)
    around = run_around()
    if around:
        terms, launch = _inside(around, terms, launch, as_step=request.as_step)
    run = supervised_run(terms, typed=True)
    _look_at_the_last(run, request, person)
    return _carry(run, launch, variables, link, person, around=around, options=options)


def _inside(around: str, terms: Terms, launch: Launch, *, as_step: bool) -> tuple[Terms, Launch]:
    """The start of a run inside of another one. Raises RunRefused where it would be that very run.

    A step that is done in this run of its script is not done again; one of an earlier run starts from the beginning.
    """
    store = stores.acquire(terms.store or settings.load()["store"] or None)
    try:
        known = store.list(RunFilter(task=terms.task, project=terms.project, parent=""), limit=1)
        last = launch_of(store, known[0]) if known else None
        outer = [each for each in store.list(RunFilter(run_prefix=around)) if each.run == around]
        above = launch_of(store, outer[0]) if outer else None
    finally:
        stores.give_back(store)
    if known and known[0].run == around:
        raise RunRefused(
            f"task {terms.task} is run {around}, in which this was started",
            hint="give the command inside of it another --task",
        )
    launch = approvals.on_top(launch, above)
    was_inside = last is not None and last.within == around
    if as_step and known and (known[0].state.status == "failed" or not was_inside):
        terms = msgspec.structs.replace(terms, again=True)
    before = Usage()
    if known and known[0].state.status not in (*CLOSED, "failed"):  # it goes on
        before = last.spent_before if last is not None and was_inside else known[0].state.spent
    return terms, msgspec.structs.replace(launch, within=around, spent_before=before)


def _identified(terms: Terms, launch: Launch) -> tuple[Terms, Launch]:
    """The terms of the run that is meant, before anything is decided by its workspace; and the launch, guarded if that run was:
    what a guarded attempt left in doubt must not be done again unawares. What waited for a person in that run still does."""
    here = settings.load(Path(terms.workspace) if terms.workspace else None)
    store = stores.acquire(terms.store or here["store"] or None)
    try:
        terms = identity.identified(terms, store)
        if terms.again:
            return terms, launch
        where = RunFilter(task=terms.task, project=terms.project, parent="", open_only=True)
        known = store.list(where, limit=1)
        last = launch_of(store, known[0]) if known else None
        was_guarded = last is not None and last.guard
        return terms, approvals.on_top(
            msgspec.structs.replace(launch, guard=launch.guard or was_guarded), last
        )
    finally:
        stores.give_back(store)


def _is_guarded(request: RunRequest, folder: Path) -> bool:
    """Whether a command is guarded: by its flag, by a setting, or because the run around it is."""
    return (
        request.guard
        or settings.load(folder)["run_guard"]
        or environment.is_below_guard(settings.inherited())
    )


def _check_classes(launch: Launch, variables: dict[str, str]) -> None:
    """Raise UsageError if a command is to be guarded and the user's file of outward classes cannot be read."""
    if launch.guard:
        from outlast.supervisor.agent.calls.outward import OutwardCalls

        OutwardCalls(variables)


def _terms(request: RunRequest, folder: Path | None, cwd: Path | None = None) -> Terms:
    return terms_of(
        request.task or _task_of(request.words), goal=request.goal, done=request.done, invariants=request.invariants,
        budget=_budget(request), store=request.store, project=request.project, workspace=folder,
        files=request.files, moved=request.moved, amend=request.amend, again=request.again or not request.task,
        started_in=cwd if request.workspace is None else None,
    )  # fmt: skip


def _budget(request: RunRequest) -> Allowance | None:
    """The limits as typed, with the reserve that was typed for limits chosen by experience."""
    if not budget_check.is_auto(request.budget):
        return budget_of(request.budget, request.until, request.reserve)
    share = None if request.reserve is None else budgets.reserve(request.reserve)
    found = budget_of(None, request.until) or Allowance()
    return msgspec.structs.replace(found, reserve_pct=share)


def program_of(word: str, cwd: str) -> str:
    """Where a program is. Raises UsageError."""
    try:
        return find_program(word, inherited().get("PATH", os.defpath), cwd)
    except CannotStart as error:
        raise UsageError(str(error), hint=error.hint) from error


def _program_to_come(word: str, cwd: str) -> str:
    """The same in a folder that is not there yet; its own programs come with it."""
    return os.path.join(cwd, word) if "/" in word else program_of(word, "/")


def _by_experience(
    terms: Terms,
    agent: KnownAgent | None,
    launch: Launch,
    variables: dict[str, str],
    person: Person,
) -> Terms:
    store = stores.acquire(terms.store or settings.load()["store"] or None)
    try:
        return budget_check.by_experience(store, terms, agent, launch, variables, person)
    finally:
        stores.give_back(store)


def _look_at_the_last(run: RunEngine, request: RunRequest, person: Person) -> None:
    """Compare the request with the task's last run. Raises RunRefused for terms that this run cannot take any more."""
    if run.terms.again:
        return
    store = stores.acquire(run.terms.store or run.settings["store"] or None)
    try:
        known = store.list(RunFilter(task=run.task, project=run.terms.project, parent=""), limit=1)
        if known and known[0].state.status == "done":
            other = " and ".join(_differences(store, known[0], request))
            if other:
                person.say(f"it was done with another {other}; to run it again with this one, say --again")
        if known and known[0].state.status == "failed" and request.amend:
            raise RunRefused(
                f"run {known[0].run} of task {run.task} has failed, and --amend changes only what goes on",
                hint=f"`outlast resume {known[0].run}` gives it another try as it is; --again starts a new run like this",
            )
    finally:
        stores.give_back(store)


def _differences(store: Store, summary: Summary, request: RunRequest) -> Iterator[str]:
    """How the requested task differs from this run, in words for people."""
    contract, launch = reader.contract(store, summary.state), launch_of(store, summary)
    pairs = (
        ("goal", request.goal, contract.goal),
        ("--done", request.done, contract.checks),
        ("--invariant", request.invariants, contract.invariants),
        ("command", request.words, tuple(launch.words) if launch is not None else request.words),
    )
    yield from (name for name, wanted, was in pairs if wanted is not None and wanted != was)


def resume(
    url: str,
    summary: Summary,
    launch: Launch,
    link: Link,
    person: Person,
    *,
    opened: bool = False,
    options: ChronicleOptions | None = None,
) -> int:
    """Carry on a run as its last start recorded it; the exit code. The store must not be open here: it has threads.

    `opened`: a person is at the terminal this once, also where the command is headless.
    """
    launch = _at_terminal(launch, summary, opened=opened)
    variables, missing = supervisor_launch.environment_of(launch, inherited())
    settings.adopt(variables)  # checks and git need its PATH as much as the command does
    launch = supervisor_launch.with_settings_of_now(launch)
    if known_agent(launch) is not None:
        variables |= registry.env_assignments(launch.words)
    budget_check.check_again(known_agent(launch), launch, variables, person)
    if missing:
        path = settings.user_folder() / supervisor_launch.SECRETS_FILE
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        names = ", ".join(missing[:NAMED_MAX]) + more
        person.say(f"not set here, but at the first start: {names}; values belong into {path}")
    state = summary.state
    terms = terms_of(
        state.task, store=url, project=summary.project, workspace=state.workspace or None, files="keep"
    )
    return _carry(supervised_run(terms), launch, variables, link, person, "resumed", options=options)


def _at_terminal(launch: Launch, summary: Summary, *, opened: bool) -> Launch:
    """The launch with or without a terminal. Raises UsageError for a session with an agent if there is no terminal."""
    here = os.isatty(0) and os.isatty(1)
    agent = known_agent(launch)
    interactive = opened or (launch.interactive and not launch.opened)
    if interactive and not here and agent is not None:
        raise no_terminal(summary)
    headless = agent is not None and agent.cli.read(launch.words).headless
    return msgspec.structs.replace(launch, interactive=interactive and here, opened=opened and headless)


def no_terminal(summary: Summary) -> UsageError:
    """The error for resuming a session with an agent without a terminal."""
    return UsageError(
        f"task {summary.task} is a session at a terminal, and this is not a terminal",
        hint=f"`outlast open {shlex.quote(summary.task)}` at one",
    )


def _carry(
    run: RunEngine, launch: Launch, variables: dict[str, str], link: Link, person: Person,
    kind: Kind = "command", *, around: str = "", options: ChronicleOptions | None = None,
) -> int:  # fmt: skip
    supervisor = Supervisor(run, launch, variables, link, person, options)
    if not run.terms.workspace or launch.share:
        return supervisor.carry()
    store = stores.acquire(run.terms.store or run.settings["store"] or None)
    try:
        private = Saver(run.folder, store.local).private
        known = store.list(RunFilter(task=run.task, project=run.terms.project, parent=""), limit=1)
        if around and _works_inside(store, occupant(private), around):
            return supervisor.carry()
        pid_watch.wait_until_left(store.local, [*(item.run for item in known), occupant(private)])
        with occupied(private, run.folder, known[0].run if known else "(new)", run.task, kind) as ours:
            return supervisor.carry(ours)
    finally:
        stores.give_back(store)


def _works_inside(store: Store, occupant: str, around: str) -> bool:
    """Whether the run that works in a folder is the one around, or one around that."""
    for _ in range(LEVELS_MAX):
        if not around or around == occupant:
            break
        found = [item for item in store.list(RunFilter(run_prefix=around)) if item.run == around]
        above = launch_of(store, found[0]) if found else None
        around = above.within if above is not None else ""
    return bool(around) and around == occupant


def check_version(agent: KnownAgent, words: Sequence[str], program: str, person: Person) -> None:
    """Refuse a release of the agent that outlast cannot supervise; warn about an untested one."""
    start = registry.start(agent, words, program)
    if start == 1:
        version = versions.of(agent.release, program, _ask)
    else:  # below a runner (npx, uvx) or a wrapper: the agent is asked through it
        there = shutil.which(words[start - 1], path=inherited().get("PATH")) or ""
        version = versions.of(
            agent.release, there, lambda line, limit_s: _ask([*words[:start], *line[1:]], limit_s)
        )
    problem = versions.problem(agent.release, version)
    if problem:
        raise UsageError(problem, hint="install another release, or run it as any command with --plain")
    untried = versions.untested(agent.release, version)
    if untried:
        person.say(untried)


def _ask(words: Sequence[str], timeout_s: float) -> str:
    """A program's answer about itself."""
    import subprocess

    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout + done.stderr


def _workspace(request: RunRequest, cwd: Path, person: Person) -> Path | None:
    """The folder to save: the given one, else the repository around, else this one; None if that is refused."""
    if request.workspace is not None:
        folder = Path(os.path.expanduser(request.workspace))
        if folder.is_dir():
            repo.refuse(Path(os.path.realpath(folder)))
        return folder
    folder = workspace_around(cwd)
    try:
        repo.refuse(folder)
    except WorkspaceRefused as error:
        person.say(f"no files are saved: {error}", needed=True)
        return None
    if os.path.lexists(folder / ".git") and (why := repo.distrusted(folder)):
        person.say(why)
    return folder


def _task_of(words: Sequence[str]) -> str:
    """A name for a command that was given none: the same words in the same folder are the same task."""
    name = _SLUG.sub("-", Path(words[0]).name).strip("-")[:40] or "command"
    digest = hashlib.blake2b(shlex.join(words).encode("utf-8", "surrogateescape"), digest_size=3).hexdigest()
    return f"{name}-{digest}"


def inherited() -> dict[str, str]:
    """The environment that a command gets: ours, without what belongs to a run around us."""
    ours = settings.environment(without=supervisor_launch.OURS, **settings.timing_given())
    return environment.without_guard(ours, settings.variable(environment.BASH_ENV))
