"""The morning after a night of some forty runs over three projects: every way to work, rest and end, and hostile words.

Made from a seed, by journals written straight into the store; nothing of it ever ran."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outlast.core.plan import Step
from outlast.core.values import Allowance, ForkPoint, MemoryRef
from tests.support.inprocess import reading
from tests.support.journals.cast import (
    AGENTS,
    CLAUDE,
    CODEX,
    GEMINI,
    KIMI,
    PEOPLE,
    PLAN,
    PROJECTS,
    SEED,
    STOPS,
    Cast,
)
from tests.support.journals.scribe import AgentCli, Scribe
from tests.support.journals.stopped_runs import budgets, doubts, failed, parked

LONG_WORD = "a" * 5_000
HOSTILE = (
    "<script>alert(1)</script> \"quoted\" 'single' &amp; </textarea><img src=x onerror=alert(2)> \u202eyad doog\u202c "
    f"\x1b[31mred\x1b[0m \x00\x07 {{{{7*7}}}} %s ${{x}} \u200b\U0001f419 {LONG_WORD}"
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
    bad = AgentCli("claude", "claude", "<b>model</b>", 1_000)
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


def make_night(root: Path, *, seed: int = SEED, now: datetime | None = None, hostile: bool = True) -> Path:
    """Some forty runs over three projects and four agents, as of `now`; the store's folder."""
    cast = Cast(random.Random(f"night {seed}"), now or datetime.now(UTC))
    for part in (_done, _resumed, doubts, budgets, parked, failed, _stopped, _working, _odd):
        part(cast)
    if hostile:
        _hostile(cast)
    with reading(root) as store:
        oldest_first = sorted(cast.scribes, key=lambda scribe: scribe.opened_at)
        first, *others = [scribe.journal for scribe in oldest_first]
        store.create(*first, children=others)
    (root / "working").write_text("\n".join(cast.working))
    return root
