"""Take a run over for a person: into another agent CLI, from its supervisor to the terminal, or into the agent's session
without outlast, by a line to type.
"""

import os
import select
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outlast.agents import KnownAgent, registry
from outlast.agents.values import Ask
from outlast.core.text import did_you_mean
from outlast.errors import RunRefused, Stopped, UsageError
from outlast.inspect import find
from outlast.operations import requests
from outlast.runs import reader
from outlast.store.protocol import Store, Summary
from outlast.supervisor import start
from outlast.supervisor.budget import check
from outlast.supervisor.guardian import lock
from outlast.supervisor.guardian.link import Link
from outlast.supervisor.launch import approvals, launch as supervisor_launch
from outlast.supervisor.launch.last_launch import known_agent, launch_of
from outlast.supervisor.launch.launch import Launch
from outlast.supervisor.output.streams import piped
from outlast.supervisor.person import Person
from outlast.supervisor.timing import Timing
from outlast.workspace.types import raw

# -- another CLI ---------------------------------------------------------------------------------------------------


def in_other(
    store: Store, summary: Summary, launch: Launch, name: str, words: Sequence[str], person: Person
) -> Launch:  # fmt: skip
    """The run's launch with another agent: with these words, else with its usual ones. Raises UsageError before any change.

    It works in the same folder, in the environment of this process, under the same limits.
    """
    agent = registry.by_name(name)
    if agent is None:
        raise UsageError(
            f"no such agent: {name:.80}",
            hint=did_you_mean(name, registry.NAMES) or f"outlast knows {', '.join(registry.NAMES)}",
        )
    cwd = os.fsdecode(raw(launch.cwd))
    words = tuple(words) or _usual(store, summary, launch, agent)
    program = start.program_of(words[0], cwd)
    found = registry.recognise(words, program)
    if found is not agent:
        what = f"starts {found.name}" if found is not None else "does not start an agent's session"
        raise UsageError(
            f"{shlex.join(words)[:80]} {what}, not {name}",
            hint=f"give the command after `--`: outlast resume {shlex.quote(summary.task)} --agent {name} -- CMD …",
        )
    start.check_version(agent, words, program, person)
    variables = start.inherited()
    made = supervisor_launch.recorded(
        words, program, Path(cwd), variables, issue=launch.issue, rounds=launch.rounds, restarts=launch.restarts,
        parks=launch.parks, stall=launch.stall, share=launch.share, setup=launch.setup, accept_unknown=launch.accept_unknown,
        gateway=launch.gateway, gateway_yes=launch.gateway_yes,
    )  # fmt: skip
    made = approvals.on_top(made, launch)
    check.check_again(agent, made, variables | registry.env_assignments(words), person)
    return msgspec.structs.replace(made, interactive=not agent.cli.read(words).headless)


def _usual(store: Store, summary: Summary, launch: Launch, agent: KnownAgent) -> tuple[str, ...]:
    """Its usual command line, with the prompt and the permissions of the command before."""
    before = known_agent(launch)
    prompt = before.cli.read(launch.words).prompt if before is not None else ""
    prompt = (
        prompt or piped(store.local.run_folder(summary.run)) or reader.contract(store, summary.state).goal
    )
    if not prompt:
        raise UsageError(
            f"no prompt is known for {agent.name}",
            hint=f"give its command after `--`: outlast resume {shlex.quote(summary.task)} --agent {agent.name} -- CMD …",
        )
    trusting = before is not None and before.cli.read(launch.words).trusting
    return agent.cli.headless_words(prompt, trusting=trusting)


# -- opening -------------------------------------------------------------------------------------------------------


def take(store: Store, summary: Summary, link: Link, person: Person) -> Launch:
    """Free a run whose session is to be opened here: a live headless attempt stops at the end of its beat. Returns its launch.

    Raises RunRefused if there is no session to open or another process has it, Stopped if the person stops waiting.
    """
    launch = launch_of(store, summary) if summary.state.supervised else None
    name = f"run {summary.run} of task {summary.task}"
    if launch is None or known_agent(launch) is None:
        raise RunRefused(
            f"{name} does not run an agent, so it has no session to open",
            hint=f"see `outlast show {summary.run}`",
        )
    watcher = lock.of(store.local, summary.run)
    if watcher is not None and watcher.supervisor:
        if launch.interactive:
            raise RunRefused(
                f"{name} is open at a terminal already, in pid {watcher.supervisor}",
                hint="leave it there first",
            )
        if find.shown_status(store, summary.state, summary.root) != "running":
            raise RunRefused(
                f"{name} waits for its next attempt in pid {watcher.supervisor}",
                hint=f"wait for it, or stop it with `outlast kill {summary.run}`",
            )
        requests.ask(store, summary.run, "kill", "open")
        person.say(
            f"{name} is asked to stop at the end of its beat; waiting for that (Ctrl-C: not any longer)"
        )
        _wait(store, summary, link)
    requests.resume(store, summary.run)
    return launch


def _wait(store: Store, summary: Summary, link: Link) -> None:
    """Wait until no guardian of the run lives. Raises Stopped on a signal or after the time limit."""
    timing = Timing.current()
    until_s = time.monotonic() + timing.takeover_wait_s
    while (watcher := lock.of(store.local, summary.run)) is not None and watcher.guardian:
        if link.closed:
            time.sleep(timing.takeover_look_s)
        else:
            select.select([link], [], [], timing.takeover_look_s)
        if any(message.what == "signal" for message in link.heard()) or time.monotonic() > until_s:
            error = Stopped(
                f"run {summary.run} cannot be opened now; it still stops at the end of its beat",
                hint=f"`outlast resume {summary.run}` goes on",
            )
            error.exit_code = 128 + signal.SIGINT
            raise error


def is_at_terminal(launch: Launch | None) -> bool:
    """Whether it was a person's session with an agent, which only a person continues."""
    return launch is not None and launch.interactive and known_agent(launch) is not None


# -- without us ----------------------------------------------------------------------------------------------------


class Bare(msgspec.Struct, frozen=True):
    """The agent of a run: how outlast learns of its calls before they run, and how to go on in its session without outlast."""

    agent: str
    intent: tuple[str, ...]
    folder: str
    command: tuple[str, ...]

    @property
    def line(self) -> str:
        """A line for a shell; empty if there is no session yet that can be resumed."""
        return f"cd {shlex.quote(self.folder)} && {shlex.join(self.command)}" if self.command else ""


def bare(store: Store, summary: Summary) -> Bare | None:
    """How to go on without outlast; None if no known agent works on the run."""
    launch = launch_of(store, summary) if summary.state.supervised else None
    agent = known_agent(launch) if launch is not None else None
    if launch is None or agent is None:
        return None
    known = summary.state.session
    command = agent.cli.resume_words(known.session) if known is not None and known.agent == agent.name else ()
    return Bare(agent.name, _known_by(store, summary, launch, agent), os.fsdecode(raw(launch.cwd)), command)


def _known_by(store: Store, summary: Summary, launch: Launch, agent: KnownAgent) -> tuple[str, ...]:
    """How outlast learns of the agent's calls; without hooks where the agent's settings switch them off."""
    folder, cwd = store.local.run_folder(summary.run), Path(os.fsdecode(raw(launch.cwd)))
    environment = {**start.inherited(), **registry.env_assignments(launch.words)}
    ask = Ask(words=tuple(launch.words), environment=environment, cwd=cwd, folder=folder)
    try:
        is_blind = bool(agent.cli.hooks_off(ask))
    except UsageError:  # settings that cannot be read; a start reports that
        is_blind = False
    return tuple(one for one in agent.release.caps.intent if one != "hooks" or not is_blind)
