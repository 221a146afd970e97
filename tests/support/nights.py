"""Stores to look at: the morning after a night of some forty runs, ten thousand runs, a run of ten thousand beats.

Made from a seed, by journals written straight into the store; nothing of it ever ran. From the shell:
`python -m tests.support.nights FOLDER [--many] [--long] [--hold]`; with `--hold` the runs that work are held alive.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outlast.core import events as ev, plan as plans
from outlast.core.plan import Step
from outlast.core.state import RunState, fold
from outlast.core.values import Allowance, ForkPoint, MemoryRef, Window
from outlast.runs import reader
from outlast.store import open_store
from outlast.store.protocol import Batch, Lease, Store
from tests.support.journals import Agent, Scribe, payload

SEED = 7
CLAUDE = Agent("claude", "claude", "claude-opus-4-5", 4_200)
CODEX = Agent("codex", "codex", "gpt-5-codex", 2_600)
KIMI = Agent("kimi-code", "kimi", "kimi-k2", 900)
GEMINI = Agent("gemini", "gemini", "gemini-2.5-pro")  # a subscription pays
AGENTS = (CLAUDE, CODEX, KIMI, GEMINI)
PROJECTS = ("shop", "ledger", "handbook")
PEOPLE = ("ada", "grace")
BULK_RUNS = 500  # in one transaction
LONG_WORD = "a" * 5_000
HOSTILE = (
    "<script>alert(1)</script> \"quoted\" 'single' &amp; </textarea><img src=x onerror=alert(2)> \u202eyad doog\u202c "
    f"\x1b[31mred\x1b[0m \x00\x07 {{{{7*7}}}} %s ${{x}} \u200b\U0001f419 {LONG_WORD}"
)


@dataclass
class Cast:
    """Who takes part: it makes the journals, and remembers them in the order in which they are created."""

    rng: random.Random
    now: datetime
    scribes: list[Scribe] = field(default_factory=list)
    working: list[str] = field(default_factory=list)  # runs whose last attempt has no end

    def run(
        self, task: str, project: str, goal: str, agent: Agent | None, hours_ago: float, **more: object
    ) -> Scribe:
        """A run that was opened so many hours ago."""
        at = self.now - timedelta(hours=hours_ago)
        place = f"/srv/code/{project}"
        scribe = Scribe(self.rng, at, task, f"{place}/.git", goal, agent, place if agent else "", **more)  # type: ignore[arg-type]
        self.scribes.append(scribe)
        return scribe

    def work(self, scribe: Scribe, beats: int, *, tokens: int = 40_000, seconds: float = 90.0) -> Scribe:
        """So many beats of an ordinary agent."""
        for _ in range(beats):
            calls = self.rng.choice(CALLS)
            spent = max(500, int(self.rng.lognormvariate(0, 0.5) * tokens))
            lasted = max(1.0, self.rng.lognormvariate(0, 0.4) * seconds)
            scribe.beat(self.rng.choice(SAID), calls, tokens=spent, seconds=lasted)
        return scribe

    def until(self, scribe: Scribe, minutes_ago: float) -> Scribe:
        """Let its clock stand so many minutes before now, if it is not there yet."""
        scribe.at = max(scribe.at, self.now - timedelta(minutes=minutes_ago))
        return scribe


CALLS: tuple[tuple[str, ...], ...] = (
    ("Read src/cart.py",), ("Bash pytest -q",), ("Edit src/cart.py", "Bash pytest -q tests/test_cart.py"),
    ("Grep def total", "Read src/total.py"), ("Bash git commit -am wip",), ("Write docs/rounding.md",), (),
)  # fmt: skip
SAID = (
    "The failing test expects half-up rounding; the code uses banker's rounding. Fixing that first.",
    "All tests of this module pass now. Next: the same for refunds.",
    "Read the callers: three of them pass a float. They should pass cents.",
    "The migration works on the sample database; I will run it on the copy of production next.",
    "Nothing else uses this function, so I removed it.",
)  # fmt: skip
STOPS: tuple[tuple[ev.Cause, str], ...] = (
    ("crash", "exited with 1: fetch failed"), ("signal", "SIGHUP from pid 77 (ada: sshd)"),
    ("oom", "killed by the kernel: out of memory in /agents (limit 2000 MB)"),
)  # fmt: skip
PLAN = (
    Step("understand", (Step("read the module"), Step("reproduce the bug"))),
    Step("fix", (Step("change the code"), Step("extend the tests"), Step("run everything"))),
    Step("write it down"),
)


# -- what went well --------------------------------------------------------------------------------------------------


def _done(cast: Cast) -> None:
    """Twelve that are done, over two weeks, so that the charts have something to show."""
    goals = (
        "Round prices half-up everywhere", "Refunds in the customer's currency", "Replace the CSV importer",
        "Upgrade to Python 3.13", "Split the settings page", "Nightly report of failed payments",
        "Explain how invoices are numbered", "Typos in the handbook", "Cache the exchange rates",
        "Make the search twice as fast", "Remove the old login", "Show taxes per country",
    )  # fmt: skip
    for number, goal in enumerate(goals):
        agent, project = AGENTS[number % 4], PROJECTS[number % 3]
        scribe = cast.run(f"{100 + number}", project, goal, agent, 26 * number + 9, checks=("pytest -q",))
        if number % 2:
            scribe.plan(PLAN)
        scribe.save("beat", "the beginning").start()
        beats, tokens = len(scribe._steps) or cast.rng.randint(4, 40), 30_000 + 9_000 * (number % 4)
        if number % 3 == 1:
            cast.work(scribe, beats // 2, tokens=tokens).stop(*cast.rng.choice(STOPS))
            scribe.wait(300).save("found", "found on resume").start()
        cast.work(scribe, beats - scribe.beats, tokens=tokens)
        scribe.save("final", "done").done()


def _resumed(cast: Cast) -> None:
    """Killed by the kernel for memory, stopped by a quota, killed with -9: each went on and is done."""
    oom = cast.run("214", "shop", "Import ten years of orders", CLAUDE, 11, checks=("pytest -q",))
    cast.work(oom.start(), 14).stop("oom", "killed by the kernel: out of memory in /agents (limit 2000 MB)")
    cast.work(oom.wait(20).start(), 9).done()
    quota = cast.run("215", "ledger", "Book fees into their own account", CODEX, 10.5)
    cast.work(quota.start(), 6)
    wall = "You've hit your usage limit. Try again in 1 hour."
    quota.stop("quota", wall).park(quota.at + timedelta(hours=1), "quota", wall, "work")
    cast.work(quota.wait(3_600).wake("outlast").start(), 5).done()
    killed = cast.run("216", "handbook", "Rewrite the chapter on payments", KIMI, 8)
    for _ in range(3):
        cast.work(killed.start(), 4).stop("signal", "killed (SIGKILL), sender unknown")
        killed.wait(15).save("found", "found on resume")
    cast.work(killed.start(), 5).done()


# -- what needs a person ---------------------------------------------------------------------------------------------


def _doubts(cast: Cast) -> None:
    """In doubt: a payment nobody may repeat, one that a probe will look at, one that it could not tell, a push."""
    pay = cast.run(
        "payout-07", "shop", "Pay out the partners for October", None, 6, checks=("python verify.py",)
    )
    pay.plan(tuple(Step(f"partner {n}") for n in range(1, 9))).start()
    for number in range(3):
        pay.call("pay", "ask", key=f"payout-2026-10-{number}", args={"partner": number, "eur": 120}).wait(2)
        pay.confirm({"id": f"po_{number}"}).beat(f"partner {number} is paid", seconds=5)
    pay.call("pay", "ask", key="payout-2026-10-3", args={"partner": 3, "eur": 480}).wait(30)
    pay.doubt("TimeoutError: no answer within 30 s").end(
        "in_doubt",
        "crash",
        "EffectInDoubt: it is not known whether pay (payout-2026-10-3) happened",
        wanted=True,
    )
    probed = cast.run("release-2.4", "ledger", "Release 2.4", None, 5)
    probed.start().call("publish", "probe", key="ledger-2.4.0", args={"version": "2.4.0"}).wait(4)
    probed.end("in_doubt", "crash", "pid 4121 on night-owl is gone and recorded no end")
    looked = cast.run("release-2.5", "ledger", "Release 2.5", None, 4)
    looked.start().call("publish", "probe", key="ledger-2.5.0", args={"version": "2.5.0"}).wait(4)
    looked.doubt("ConnectionResetError: [Errno 104] Connection reset by peer")
    looked.settle("cannot_tell", "probe", "the index answered 503 twice").wait(1)
    looked.end("in_doubt", "crash", "EffectInDoubt: publish (ledger-2.5.0)", wanted=True)
    push = cast.run("217", "shop", "Drop the legacy checkout", CLAUDE, 7)
    cast.work(push.start(), 7).call("Bash git push origin legacy-free", "tell", key="toolu_01").wait(3)
    push.doubt("the agent was killed in it")
    push.stop("signal", "SIGTERM from pid 311 (root: systemd-logind)", status="in_doubt", wanted=True)


def _budgets(cast: Cast) -> None:
    """Out of its budget after warnings and a wrap-up; one that is nearly there; one with money; one with a window."""
    full = cast.run(
        "218", "shop", "Refactor the whole price engine", CLAUDE, 9, budget=Allowance(tokens=1_000_000)
    )
    full.plan(PLAN).start()
    for tokens in (230_000, 260_000, 270_000):
        full.beat(cast.rng.choice(SAID), CALLS[2], tokens=tokens, seconds=400)
    full.warn("budget 75% of tokens 1000000", "76% of the budget is spent: 760,000 of 1,000,000 tokens")
    full.beat(cast.rng.choice(SAID), CALLS[1], tokens=150_000, seconds=300)
    full.warn("budget 90% of tokens 1000000", "91% of the budget is spent: 910,000 of 1,000,000 tokens")
    full.warn("wrap-up of tokens 1000000", "told to wrap up: 910,000 of 1,000,000 tokens")
    full.beat(
        "Committed what works; NOTES.md says what is left.", ("Bash git commit -am notes",), tokens=40_000
    )
    full.stop("budget", "all but the reserve is spent: 950,000 of 1,000,000 tokens", wanted=True)
    near = cast.run(
        "219",
        "ledger",
        "Reconcile the bank statements of 2025",
        CODEX,
        3,
        budget=Allowance(tokens=900_000, time_s=14_400),
    )
    near.plan(PLAN).start()
    for _ in range(4):
        near.beat(cast.rng.choice(SAID), CALLS[3], tokens=175_500, seconds=1_500)
    near.warn("budget 75% of tokens 900000", "78% of the budget is spent: 702,000 of 900,000 tokens")
    cast.until(near, 3).beat("The statements of May agree.", ("Bash pytest -q",), tokens=9_000, seconds=40)
    cast.working.append(near.run)
    paid = cast.run(
        "220", "handbook", "Translate the handbook", KIMI, 30, budget=Allowance(cost_microusd=5_000_000)
    )
    paid.start()
    for _ in range(20):
        paid.beat("One more page is translated.", ("Write de/page.md",), tokens=276_111, seconds=300)
    paid.warn("wrap-up of usd 5000000", "told to wrap up: $4.97 of $5.00")
    paid.stop("budget", "one more turn does not fit: $4.97 of $5.00 spent", wanted=True)
    share = cast.run("221", "handbook", "Index of all terms", GEMINI, 12, budget=Allowance(window_pct=80))
    share.start()
    for pct in (20.0, 41.0, 66.0, 79.0):
        window = Window(pct, cast.now + timedelta(hours=3), "5 h")
        share.beat(
            "Another chapter is indexed.", ("Write index.md",), tokens=90_000, seconds=600, window=window
        )
    share.ask("pause", PEOPLE[0]).end("paused", "operator", f"pause by {PEOPLE[0]}", wanted=True)


def _parked(cast: Cast) -> None:
    """Waiting for a reset; waiting for a person: no login, no program."""
    reset = cast.run("222", "shop", "Test the checkout in every browser", CLAUDE, 6)
    cast.work(reset.start(), 12)
    wall = "You've hit your session limit · resets 9am"
    reset.stop("quota", wall).park(cast.now + timedelta(hours=1, minutes=12), "quota", wall, "team")
    login = cast.run("223", "ledger", "Archive closed accounts", CODEX, 14)
    said = "401 Unauthorized: please run `codex login`"
    cast.work(login.start(), 2).stop("auth", said, exit_code=1).park(None, "auth", said)
    missing = cast.run("224", "handbook", "Check all links", GEMINI, 15)
    said = "gemini: command not found"
    missing.start().wait(1).end("parked", "program_missing", said).park(None, "program_missing", said)


def _failed(cast: Cast) -> None:
    """Failed checks, an invariant, quarantine, a stall, a full disk."""
    checks = cast.run(
        "225", "shop", "Make the cart tests pass", CODEX, 13, checks=("pytest -q", "ruff check .")
    )
    cast.work(checks.start(), 9).end(
        "failed", "checks", "pytest -q still failed after 5 rounds: 2 failed, 118 passed", exit_code=0
    )
    rule = cast.run("226", "ledger", "Simplify the journal", CLAUDE, 16, invariants=("python balance.py",))
    cast.work(rule.start(), 5).stop(
        "invariant", "python balance.py exited with 1: debit and credit differ by 0.01", status="failed"
    )
    crash = cast.run("227", "handbook", "Spell-check in CI", KIMI, 17)
    for _ in range(3):
        crash.start().wait(5).stop(
            "crash", "exited with 1: TypeError: cannot read properties of undefined", exit_code=1
        )
    crash.end("failed", "quarantine", "3 attempts in a row made no progress")
    stall = cast.run("228", "shop", "Find out why the queue is slow", GEMINI, 18)
    cast.work(stall.start(), 12).stop(
        "stall", "the same call with the same result 10 times: Bash ls", wanted=True
    )
    disk = cast.run("229", "ledger", "Rebuild all statements", CODEX, 19)
    cast.work(disk.start(), 3).stop("disk", "OSError: [Errno 28] No space left on device", wanted=True)


# -- what rests, and what works --------------------------------------------------------------------------------------


def _stopped(cast: Cast) -> None:
    """Paused, cancelled, handed off, stopped by a signal, lost with its host, never begun."""
    paused = cast.run("230", "shop", "Move to the new tax API", CLAUDE, 20)
    cast.work(paused.start(), 8).ask("pause", PEOPLE[1]).save("emergency", f"operator: pause by {PEOPLE[1]}")
    paused.end("paused", "operator", f"pause by {PEOPLE[1]}", wanted=True)
    cancelled = cast.run("231", "ledger", "Port the ledger to Rust", CODEX, 40)
    cast.work(cancelled.start(), 3).ask("cancel", PEOPLE[0]).end(
        "cancelled", "operator", f"cancel by {PEOPLE[0]}: not worth it", wanted=True
    )
    handed = cast.run("232", "handbook", "Glossary", KIMI, 50)
    cast.work(handed.start(), 4).end(
        "interrupted", "signal", "SIGINT from pid 880 (ada: bash)", wanted=True
    ).ask("handoff", PEOPLE[0])
    told = cast.run("233", "shop", "Slim the Docker image", GEMINI, 5)
    left_out = ("build/image.tar (12,582,912 bytes: bigger than 10 MiB)", ".env (a secret)")
    cast.work(told.start(), 6).save("emergency", "signal: SIGTERM from pid 1 (root: systemd)", left_out)
    told.end("interrupted", "signal", "SIGTERM from pid 1 (root: systemd)", wanted=True)
    lost = cast.run("234", "ledger", "Sum up the year", CLAUDE, 12)
    cast.work(lost.start(boot_id="00000000-dead-4000-8000-000000000000"), 6)
    cast.run("235", "handbook", "", KIMI, 2)


def _working(cast: Cast) -> None:
    """At work: well on its way, quiet for long, just begun, a root with children."""
    well = cast.run(
        "236",
        "shop",
        "Gift cards",
        CLAUDE,
        2,
        checks=("pytest -q", "npm test"),
        budget=Allowance(tokens=4_000_000),
    )
    well.plan(tuple(Step(f"part {n}") for n in range(1, 31))).stage("writing tests").remember(
        "decisions", "file:DECISIONS.md"
    )
    cast.work(well.start(), 21, seconds=240)
    cast.until(well, 0.5).beat(
        "Gift cards can be redeemed; the tests cover expiry.", ("Bash pytest -q",), tokens=30_000, seconds=20
    )
    quiet = cast.run("237", "handbook", "Draw the architecture", GEMINI, 3)
    cast.until(cast.work(quiet.start(), 4), 47)
    new = cast.run("238", "ledger", "Currency of the month", KIMI, 0.05)
    new.start()
    cast.working += [well.run, quiet.run, new.run]
    root = cast.run("sprint-41", "shop", "Everything of sprint 41", None, 4, checks=("make test",))
    root.plan((Step("collect"), Step("do them"), Step("report"))).start().beat("three tasks", seconds=30)
    cast.working.append(root.run)
    _children(cast, root)


def _children(cast: Cast, root: Scribe) -> None:
    root.call("children", "reissue", key="children").wait(1)
    parts = (
        ("cart", "Empty carts expire", True),
        ("mail", "A nicer mail", True),
        ("coupon", "Coupons with a limit", False),
    )
    for task, goal, is_done in parts:
        child = cast.run(task, "shop", goal, CODEX, 3.5, parent=root.child_of())
        cast.work(child.start(), 5, tokens=20_000)
        if is_done:
            child.done()
    below = cast.run("coupon-copy", "shop", "Words for the coupon page", None, 1, parent=child.child_of())
    below.start().beat("Three proposals.", seconds=40).done()
    cast.until(child, 2).beat(
        "A coupon can be used ten times at most.", ("Bash pytest -q",), tokens=9_000, seconds=30
    )


def _odd(cast: Cast) -> None:
    """A fork, and work without an end."""
    origin = cast.scribes[0]
    fork = cast.run("100-other-way", "shop", "Round prices half-up everywhere", CODEX, 7,
                    fork=ForkPoint(origin.run, 3, len(origin.events)))  # fmt: skip
    cast.work(fork.start(), 3).end(
        "interrupted", "operator", "the program left the run after beat 3", wanted=True
    )
    endless = cast.run("watch", "ledger", "Watch the bank's feed and book what comes", None, 66.8)
    endless.start()
    for number in range(200):
        note = (MemoryRef("feed", f"file:feed/{number}.json"),)
        endless.beat(f"booked {number % 7} entries", seconds=1_200, remembered=note)
    cast.working.append(endless.run)


def _hostile(cast: Cast) -> None:
    """Hostile words everywhere an agent writes."""
    bad = Agent("claude", "claude", "<b>model</b>", 1_000)
    hostile = cast.run(
        "<i>task</i>&\"'", "shop", HOSTILE, bad, 1.5, checks=("echo '</pre><script>alert(3)</script>'",),
        invariants=("\u202etest -f 'evil\u202c'",),
    )  # fmt: skip
    hostile.plan((Step("<u>first</u>", (Step(HOSTILE[:400]), Step("javascript:alert(4)"))), Step("last")))
    hostile.start().stage("<svg onload=alert(5)>")
    hostile.beat(HOSTILE, ("Bash echo '<script>alert(6)</script>'",), tokens=1_000)
    hostile.remember("<a href=javascript:alert(7)>", "javascript:alert(8)")
    hostile.warn("<b>level</b>", "\x1b]0;title\x07 <iframe src=//x>")
    hostile.call("Bash curl -X POST <script>", "ask", key="</script><script>alert(9)</script>").doubt(
        HOSTILE[:600]
    )
    hostile.save("emergency", f"signal: {HOSTILE[:300]}", ("<img src=x onerror=alert(10)> (a secret)",))
    hostile.end("in_doubt", "signal", HOSTILE[:900], wanted=True)


def night(root: Path, *, seed: int = SEED, now: datetime | None = None, hostile: bool = True) -> Path:
    """Some forty runs over three projects and four agents, as of `now`; the store's folder."""
    cast = Cast(random.Random(f"night {seed}"), now or datetime.now(UTC))
    for part in (_done, _resumed, _doubts, _budgets, _parked, _failed, _stopped, _working, _odd):
        part(cast)
    if hostile:
        _hostile(cast)
    store = open_store(root)
    try:
        oldest_first = sorted(cast.scribes, key=lambda scribe: scribe.opened_at)
        first, *others = [scribe.journal for scribe in oldest_first]
        store.create(*first, children=others)
    finally:
        store.close()
    (root / "working").write_text("\n".join(cast.working))
    return root


# -- many, and long --------------------------------------------------------------------------------------------------


def many(
    root: Path, runs: int = 10_000, *, seed: int = SEED, now: datetime | None = None, projects: int = 40
) -> Path:
    """So many runs in projects of very different size; one in ten is a child. The store's folder."""
    rng, now = random.Random(f"many {seed}"), now or datetime.now(UTC)
    store, made = open_store(root), list[Scribe]()
    try:
        while len(made) < runs:
            part = [
                _one_of_many(rng, now, len(made) + n, projects, made)
                for n in range(min(BULK_RUNS, runs - len(made)))
            ]
            first, *others = [scribe.journal for scribe in part]
            store.create(*first, children=others)
            made += part
    finally:
        store.close()
    return root


def _one_of_many(rng: random.Random, now: datetime, number: int, projects: int, made: list[Scribe]) -> Scribe:
    name = f"project-{int(projects * rng.random() ** 2):02}"
    agent = rng.choice((*AGENTS, None))
    at = now - timedelta(minutes=rng.uniform(30, 60 * 24 * 14))
    goal = f"{rng.choice(('fix', 'add', 'move', 'test'))} the {rng.choice(('cart', 'login', 'search', 'report'))} of {name}"
    scribe = Scribe(
        rng, at, f"{number}", f"/srv/code/{name}/.git", goal, agent, "", Allowance(tokens=500_000)
    )
    if made and rng.random() < 0.1:
        older = rng.choice(made)
        if older.parent is None:
            scribe.parent, scribe.project = older.child_of(1), older.project
    scribe.start()
    for _ in range(rng.randint(1, 3)):
        scribe.beat("went on", tokens=rng.randrange(1_000, 150_000), seconds=30)
    end = rng.random()
    if end < 0.85:
        return scribe.done()
    if end < 0.9:
        scribe.warn("wrap-up of tokens", "told to wrap up")
        return scribe.stop("budget", "all but the reserve is spent", wanted=True)
    if end < 0.95:
        return scribe.stop("signal", "SIGTERM from pid 1 (root: systemd)", wanted=True)
    return scribe.end("failed", "checks", "pytest -q still failed after 5 rounds")


def long(root: Path, beats: int = 10_000, *, seed: int = SEED, now: datetime | None = None) -> str:
    """One run of so many beats and everything that belongs to them; its id."""
    now = now or datetime.now(UTC)
    cast = Cast(random.Random(f"long {seed}"), now)
    hours = beats * 61 / 3600 + 1
    scribe = cast.run(
        "long", "shop", "Carry on for days", CLAUDE, hours, budget=Allowance(tokens=beats * 60_000)
    )
    scribe.plan(
        (
            Step("begin"),
            *(
                Step(f"part {n // 100}", tuple(Step(f"step {n + m}") for m in range(100)))
                for n in range(0, beats, 100)
            ),
        )
    )
    attempts = 20
    for number in range(attempts):
        cast.work(scribe.start(), beats // attempts, seconds=55)
        scribe.warn(f"budget {number}", f"{number * 5}% of the budget is spent")
        if number + 1 < attempts:
            scribe.stop("signal", "killed (SIGKILL), sender unknown").wait(5)
    scribe.ask("pause", PEOPLE[0]).end("paused", "operator", f"pause by {PEOPLE[0]}", wanted=True)
    store = open_store(root)
    try:
        return store.create(*scribe.journal)
    finally:
        store.close()


# -- life ------------------------------------------------------------------------------------------------------------


class Living:
    """Runs of a store that are held by this process: they read as running, and can go on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.leases: dict[str, Lease] = {}

    def hold(self, run: str) -> None:
        self.leases[run] = self.store.claim(run)

    def append(self, run: str, *events: ev.AnyEvent) -> None:
        """Append to a run that is held; durable when it returns."""
        self.store.append(Batch(self.leases[run], run, self.head(run).seq, events))

    def head(self, run: str) -> RunState:
        """The run as it is now."""
        history = self.store.read(run)
        return fold(history.state, [item.event for item in history.events])

    def beat(self, run: str, said: str = "went on") -> datetime:
        """One more beat of a run, now, at the next step of its plan; when it was written."""
        head, at = self.head(run), datetime.now(UTC)
        steps = reader.plan_of(self.store, head) if head.plan_seq else ()
        following = plans.next_leaf(steps, head.cursor) if head.cursor else None
        done = ev.BeatDone(
            at=at, beat=head.beats + 1, cursor=following or (), over=bool(steps) and following is None,
            result=payload({"said": said}),
        )  # fmt: skip
        self.append(run, done)
        return at


@contextlib.contextmanager
def living(root: Path) -> Iterator[Living]:
    """The runs of a night that work, held by this process until the end of the block."""
    store = open_store(root)
    try:
        alive = Living(store)
        for run in (root / "working").read_text().split():
            alive.hold(run)
        yield alive
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.nights", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--many", action="store_true", help="ten thousand runs")
    parser.add_argument("--long", action="store_true", help="a run of ten thousand beats")
    parser.add_argument("--hold", action="store_true", help="hold the runs that work until Ctrl-C")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    if not (given.folder / "outlast.db").exists() and not (given.many or given.long):
        night(given.folder, seed=given.seed)
    if given.many:
        many(given.folder, seed=given.seed)
    if given.long:
        long(given.folder, seed=given.seed)
    sys.stdout.write(f"outlast --store {given.folder} ls --all\n")
    if given.hold:
        with living(given.folder), contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
