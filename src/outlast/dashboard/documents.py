"""The documents that the page, the API and the terminal show. Field names are a contract: fields are only added.

Where a command already prints JSON, its document is used unchanged."""

from datetime import datetime
from typing import Literal

import msgspec

from outlast.acts.plan import ActName as ActName
from outlast.core import budget as budgets, events as ev
from outlast.core.state import Status
from outlast.core.verdict import Need, Word
from outlast.dashboard.report import Kind
from outlast.inspect.inbox import PendingRequest
from outlast.inspect.questions import WaitsFor
from outlast.inspect.show import AttemptShown, Completed, Effect, Shown, Spent
from outlast.operations.saves.diff import FileChange
from outlast.operations.saves.listing import Point

Quiet = Literal["", "idle", "stuck"]
Sort = Literal["needs", "activity", "created", "spent", "beats", "task", "project"]
Against = Literal["before", "head"]
Grain = Literal["agent", "model", "project"]
MomentKind = Literal[
    "save", "warning", "wrap-up", "parked", "woken", "asked", "doubt", "settled", "done", "amended"
]

PAGE_ROWS = 100


class Doc(msgspec.Struct, frozen=True, kw_only=True):
    """Base of these documents."""


# -- the overview ----------------------------------------------------------------------------------------------------


class Meter(Doc, frozen=True):
    """A unit of a budget: tokens, micro-dollars, seconds, beats or hundredths of a percent; null: no limit."""

    unit: budgets.Unit
    limit: int | None
    spent: int
    left: int | None
    used_pct: float | None
    forecast: int | None
    wraps_up: bool


class Row(Doc, frozen=True):
    """A run at a glance. `meters` holds the unit nearest to its limit first. `quiet`: it lives and does nothing.

    `why` says why it stands under its heading `what`; `command` is what to type next, `act` the same on the page.
    `stranded`: it stopped against anybody's wish, and nothing starts it again by itself. `own_program`: it was not started by
    `outlast run`, so that nobody but its program's user starts it. `standing` is the one word for how it stands; null where
    it cannot be read. `pending`: what was asked of it and not taken in yet. `asks`: the budget that it asked a person for.
    `within`: the run that it was started in.
    """

    run: str
    task: str
    project: str
    project_name: str
    generation: int
    parent: str
    root: str
    what: Kind
    status: Status
    cause: ev.Cause | None
    why: str
    command: str | None
    act: ActName | None
    goal: str
    agent: str
    model: str
    stage: str
    step: str
    beats: int
    plan_total: int | None
    attempts: int
    in_doubt: int
    spent: Spent
    meters: tuple[Meter, ...]
    last_save: str | None
    lives: bool
    active_at: datetime | None
    quiet: Quiet
    quiet_s: int
    parked_until: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    children: int
    stranded: bool = False
    own_program: bool = False
    standing: Word | None = None
    needs: Need | None = None
    pending: tuple[PendingRequest, ...] = ()
    asks: str = ""
    within: str = ""
    waits_for: tuple[WaitsFor, ...] = ()


class Ask(Doc, frozen=True):
    """A query of the overview. Empty fields do not filter; `q` is words that all must occur, without case.

    `what` and `status` take several. `run_page` counts from 1. With `grouped`, projects stand together and children under
    their roots; without, every run stands by itself. `up` turns the order around.
    """

    q: str = ""
    what: tuple[Kind, ...] = ()
    status: tuple[Status, ...] = ()
    project: str = ""
    agent: str = ""
    sort: Sort = "needs"
    up: bool = False
    grouped: bool = True
    page: int = 1
    size: int = PAGE_ROWS


class Count(Doc, frozen=True):
    """How many runs have this name (of a heading, a status, a project, an agent)."""

    name: str
    runs: int
    needs_you: int = 0
    label: str = ""


class DeadChannel(Doc, frozen=True):
    """A notification channel on which the last notice did not arrive."""

    channel: str
    problem: str
    failed_at: datetime | None


class Overview(Doc, frozen=True):
    """Runs that fit, a page of them. `number`: it is as of this event of the store. `counts` are over all that fit
    but for the filter they belong to, so that a person sees what else there is. Over all runs of the store, whatever
    is asked: `needs` are the first that need a person, `needs_total` how many do, `idle` and `stuck` how many are quiet,
    `stranded` how many roots stopped with nobody who starts them again, `stranded_rows` the first of them, `at_boot` how many
    of them the installed service restarts at the next boot, `all_whats` how many stand under each heading, `all_spent`
    what they spent together, and `dead_channels` on which channels notices do not arrive.
    """

    at: datetime
    number: int
    total: int
    found: int
    page: int
    pages: int
    whats: tuple[Count, ...]
    statuses: tuple[Count, ...]
    projects: tuple[Count, ...]
    agents: tuple[Count, ...]
    spent: Spent
    rows: tuple[Row, ...]
    needs: tuple[Row, ...] = ()
    needs_total: int = 0
    idle: int = 0
    stuck: int = 0
    stranded: int = 0
    stranded_rows: tuple[Row, ...] = ()
    all_whats: tuple[Count, ...] = ()
    all_spent: Spent | None = None
    at_boot: int = 0
    dead_channels: tuple[DeadChannel, ...] = ()


# -- a run -----------------------------------------------------------------------------------------------------------


class Moment(Doc, frozen=True):
    """A point on the timeline other than a beat: a save, a warning, a park, a request, a doubt."""

    at: datetime
    seq: int
    kind: MomentKind
    text: str
    by: str = ""
    save: str = ""


class Progress(Doc, frozen=True):
    """The number of beats done by a time."""

    at: datetime
    beat: int


class Timeline(Doc, frozen=True):
    """The course of a run. `beats` is the curve of beats over time in at most 120 points, all of them if they are fewer;
    `attempts` and `moments` are the last 200 of each, `attempts_total` and `moments_total` how many there are.
    """

    since: datetime
    until: datetime
    beats: tuple[Progress, ...]
    attempts: tuple[AttemptShown, ...]
    attempts_total: int
    moments: tuple[Moment, ...]
    moments_total: int


class RunPage(Doc, frozen=True):
    """A run's first page. `shown` has the last 20 beats and the effects that are open or in doubt, nothing longer."""

    row: Row
    shown: Shown
    timeline: Timeline
    waits: str
    agent_line: str


class Beats(Doc, frozen=True):
    """Completed beats, newest first; `before` is where the next page begins, null at the end."""

    run: str
    total: int
    beats: tuple[Completed, ...]
    before: int | None


class Effects(Doc, frozen=True):
    """Effects, newest first, those in doubt on top of the first page; `before` as above."""

    run: str
    total: int
    effects: tuple["EffectShown", ...]
    before: int | None


class EffectShown(Doc, frozen=True):
    """An effect, the run it is of (a child's stand in the first page too), and what each look at it found."""

    run: str
    effect: Effect
    looks: tuple["Look", ...]


class Look(Doc, frozen=True):
    """A finding of a policy, a probe or a person."""

    at: datetime
    by: str
    finding: ev.Finding | None
    evidence: str


class Saves(Doc, frozen=True):
    """Saves of a run, newest first. `problem`: why they cannot be read, with what to type; then there are none.

    `more`: there are more than `total`, which could not be read in a moment; what to do.
    """

    run: str
    total: int
    saves: tuple["SaveRow", ...]
    page: int
    pages: int
    problem: str = ""
    more: str = ""


class SaveRow(Doc, frozen=True):
    """A save and the command that brings it back into a new folder."""

    point: Point
    restore: str


class Line(Doc, frozen=True):
    """A line of a diff: its kind, its numbers on both sides, its text."""

    kind: Literal["context", "added", "deleted", "hunk", "note"]
    old: int | None
    new: int | None
    text: str


class FilePatch(Doc, frozen=True):
    """A file that differs, with as many of its lines as are shown."""

    file: FileChange
    lines: tuple[Line, ...]
    cut: bool


class Diff(Doc, frozen=True):
    """A save against the one before or against HEAD. `cut`: more files differ than are shown here.

    `problem`: why it cannot be shown, with what to type; then there are no files.
    """

    run: str
    save: str
    against: Against
    other: str
    at: datetime
    kind: str
    reason: str
    files_total: int
    lines_added: int
    lines_deleted: int
    files: tuple[FilePatch, ...]
    cut: bool
    restore: str
    problem: str = ""


class Context(Doc, frozen=True):
    """The text that the next attempt will read, word for word."""

    run: str
    tokens: int
    text: str


class OutputLine(Doc, frozen=True):
    """A line that the agent wrote: its time of day, its stream (out, err, --- for ours); the moment, where it is known."""

    at: str
    stream: str
    text: str
    continues: bool
    moment: datetime | None = None


class Output(Doc, frozen=True):
    """The end of the log of an attempt. `cut`: so many bytes before it are left out here."""

    run: str
    attempt: int
    attempts: tuple[int, ...]
    lines: tuple[OutputLine, ...]
    cut: int
    problem: str = ""


class Entry(Doc, frozen=True):
    """An event of the journal, as `outlast log --json` has it, with its words as `outlast log` has them."""

    n: int
    seq: int
    at: datetime
    tag: str
    text: str
    event: msgspec.Raw


class JournalPage(Doc, frozen=True):
    """Events, newest first; `before` is where the next page begins, null at the end."""

    run: str
    total: int
    events: tuple[Entry, ...]
    before: int | None


# -- over all runs ---------------------------------------------------------------------------------------------------


class Emergency(Doc, frozen=True):
    """A save that was made because something happened. `picked_up`: the attempt that went on from it, null if none did.

    `files` is how many differ from the save before it; the save itself has all. `act` and `command` are what helps its run now.
    """

    n: int
    at: datetime
    run: str
    task: str
    project: str
    project_name: str
    kind: str
    cause: ev.Cause | None
    reason: str
    evidence: str
    beat: int
    commit: str
    files: int | None
    left_out: int
    picked_up: int | None
    picked_up_at: datetime | None
    status: Status
    act: ActName | None = None
    command: str | None = None


class Emergencies(Doc, frozen=True):
    """Emergency saves of all runs, newest first; `before` is where the next page begins, null at the end."""

    total: int
    causes: tuple[Count, ...]
    saves: tuple[Emergency, ...]
    before: int | None


class Series(Doc, frozen=True):
    """One colour of a chart: a value for each of its steps."""

    name: str
    values: tuple[int, ...]


class Spending(Doc, frozen=True):
    """Tokens and micro-dollars a day, by agent, model or project."""

    by: Grain
    tokens: tuple[Series, ...]
    cost_microusd: tuple[Series, ...]


class Charts(Doc, frozen=True):
    """Over the last days, in days and hours of `zone`. `counted_pct` is below 100 while the past is still being counted."""

    at: datetime
    zone: str
    counted_pct: int
    days: tuple[str, ...]
    spending: tuple[Spending, ...]
    saves_by_cause: tuple[Series, ...]
    hours: tuple[str, ...]
    beats_per_hour: tuple[int, ...]


# -- acts ------------------------------------------------------------------------------------------------------------


class Wish(Doc, frozen=True):
    """A request for an act. `dashboard.actions.perform.do` lists which fields each act takes."""

    act: ActName
    run: str
    amounts: str = ""
    limit_was: str = ""
    effect: str = ""
    finding: ev.Finding | None = None
    result: str = ""
    beat: int | None = None
    task: str = ""
    save: str = ""
    folder: str = ""
    question: str = ""
    text: str = ""


class Foreseen(Doc, frozen=True):
    """The preview of an act in whole sentences, and the command that does the same. `refused`: why it cannot be done.

    `wish` is what was asked for with what it left open filled in: post that. `takes` names the fields that a person may
    change, in their order; `lacks` those among them that must still be given, of which `says` tells.
    """

    wish: Wish
    title: str
    says: tuple[str, ...]
    command: str
    refused: str = ""
    hint: str = ""
    takes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class Done(Doc, frozen=True):
    """The outcome of an act. `changed` is false if all was so already; `link` is the run to look at now.

    `next` is the act that most likely comes next, on `next_run`; null where nothing is to be done. `folder` is where files
    were written.
    """

    wish: Wish
    at: datetime
    by: str
    ok: bool
    changed: bool
    says: str
    hint: str
    link: str
    next: ActName | None = None
    next_run: str = ""
    folder: str = ""
