"""The runs of a night that need a person in the morning: in doubt, over budget, parked, failed."""

from __future__ import annotations

from datetime import timedelta

from outlast.core.plan import Step
from outlast.core.values import Allowance, Window
from tests.support.journals.cast import (
    CALLS,
    CLAUDE,
    CODEX,
    GEMINI,
    KIMI,
    PEOPLE,
    PLAN,
    SAID,
    Cast,
)


def doubts(cast: Cast) -> None:
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


def budgets(cast: Cast) -> None:
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


def parked(cast: Cast) -> None:
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


def failed(cast: Cast) -> None:
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
