"""Scripted tasks in a world without faults: edits, comments, tickets, payments, notifications, plans of every shape."""

import json

from outlast.chaos.tasks.script import (
    Ask,
    Body,
    Do,
    Extend,
    Finish,
    Here,
    Remember,
    Script,
    Sub,
    Task,
    Together,
    Write,
)

LONG_PLAN_BEATS = 42


def _comment_on_issues(here: Here) -> Body:
    draft = yield Ask("draft", f"answer to {here.step}")
    posted = yield Do("comment", "keyed", {"issue": here.step, "text": draft})
    return posted["url"]


def _open_tickets(here: Here) -> Body:
    first = yield Do("ticket", "probed", {"title": f"{here.step}: reproduce"})
    second = yield Do("ticket", "probed", {"title": f"{here.step}: fix"})
    return [first["url"], second["url"]]


def _page_on_call(here: Here) -> Body:
    words = yield Ask("words", f"what to say about {here.step}")
    yield Do("page", "blind", words)
    return words


def _pay_invoices(here: Here) -> Body:
    approval = yield Ask("approve", f"may {here.step} be paid")
    paid = yield Do("pay", "keyed", {"invoice": here.step, "cents": 100 * here.number, "why": approval})
    yield Write(f"receipts/{here.number}.txt", f"{here.step} {paid['url']}\n")
    return paid


def _refund_orders(here: Here) -> Body:
    reason = yield Ask("reason", f"why {here.step} is refunded")
    refund = yield Do("refund", "probed", {"order": here.step, "reason": reason})
    yield Do("mail", "blind", f"we refunded {here.step}: {refund['url']}")
    return refund["url"]


def _wire_money(here: Here) -> Body:
    sent = yield Do("wire", "blind", {"to": here.step, "cents": 5_000})
    ledger = [line for line in here.read("ledger.txt").splitlines() if not line.startswith(f"{here.number} ")]
    yield Write("ledger.txt", "\n".join([*ledger, f"{here.number} {here.step} {sent['url']}", ""]))
    return "wired"


def _edit_files(here: Here) -> Body:
    patch = yield Ask("patch", f"new text of {here.step}")
    yield Write(f"src/{here.step}", f"# {here.step}\n{patch}\n")
    yield Write("CHANGES", "".join(f"edited {n}\n" for n in range(1, here.number + 1)))
    return f"src/{here.step}"


def _rename_module(here: Here) -> Body:
    name = yield Ask("name", "a better name")
    yield Write("src/old.py", "")
    yield Write("src/new.py", f'"""{name}"""\n')
    pushed = yield Do("push", "probed", {"ref": f"rename-{here.number}", "subject": name})
    return pushed["url"]


def _release(here: Here) -> Body:
    note = yield Ask("note", f"note on {here.step}")
    match here.step:
        case "tag":
            return (yield Do("tag", "keyed", {"tag": "v1", "note": note}))
        case "upload":
            return (yield Do("upload", "probed", {"file": "wheel"}))
        case "announce":
            return (yield Do("announce", "blind", note))
        case _:
            yield Write(f"build/{here.step}.log", note)
            return "built"


def _triage_plan(ask: object) -> object:
    assert callable(ask), "a planner gets a function that asks the model"
    answer = ask("which issues to triage")
    return [f"issue 7 {answer}", {"step": "the old ones", "steps": ["issue 2", "issue 3"]}]


def _triage(here: Here) -> Body:
    label = yield Ask("label", "how to label it")
    yield Do("label", "keyed", {"issue": here.step, "label": label})
    return here.step


def _migrate_fleet(here: Here) -> Body:
    if here.number % 6 == 0:
        cls = ("keyed", "probed", "blind")[here.number // 6 % 3]
        yield Do("reboot", cls, {"host": here.step})  # type: ignore[arg-type]
    elif here.number % 3 == 0:
        yield Ask("look", f"is {here.step} well", lazy=True)
    return here.number


def _crawl(here: Here) -> Body:
    found = yield Ask("next", f"where to look after page {here.number}", lazy=True)
    saved = yield Do("bookmark", "keyed", {"page": here.number, "found": found})
    yield Write(f"pages/{here.number}.txt", saved["url"])
    if here.number == 4:
        yield Finish({"pages": here.number})
    return saved


def _research(here: Here) -> Body:
    thought = yield Ask("thought", f"finding number {here.number}")
    yield Write("notes.md", f"after {here.number}: {thought}\n")
    yield Remember("notes", "file:notes.md")
    yield Remember(f"source {here.number}", f"https://papers.example/{here.number}")
    if here.number == 3:
        yield Do("report", "keyed", {"text": thought})
        yield Finish(thought)
    return thought


def _grow_plan(here: Here) -> Body:
    if here.step == "survey":
        yield Ask("survey", "what is broken")
        yield Extend(("mend door", "mend roof"))
        return "two more"
    bill = yield Do("bill", "blind", {"for": here.step})
    return bill["url"]


def _unfold_next(here: Here) -> Body:
    if here.step.startswith("split"):
        yield Extend((f"left of {here.step[6:]}", f"right of {here.step[6:]}"), where="next")
        return "split"
    yield Do("notify", "blind", f"did {here.step}")
    return here.step


def _invite(here: Here) -> Body:
    text = yield Ask("invitation", f"invitation for {here.step}")
    sent = yield Do("invite", "keyed", {"to": here.step, "text": text})
    if here.step == "bob":
        yield Finish({"last": sent["url"]})
    return sent["url"]


def _delegate(here: Here) -> Body:
    got = yield Sub(Script("invite", _invite, ["alice", "bob"]))
    yield Do("summary", "blind", {"step": here.step, "got": got})
    return got


def _count_words(here: Here) -> Body:
    words = yield Ask("words", f"words in {here.step}")
    yield Write(f"{here.label.replace('/', '-')}.txt", words)
    yield Finish(here.step)
    return words


def _two_children(here: Here) -> Body:
    first = yield Sub(Script("count readme", _count_words))
    second = yield Sub(Script("count changelog", _count_words))
    posted = yield Do("status", "probed", [first, second])
    return posted["url"]


def _middle(here: Here) -> Body:
    inner = yield Sub(Script("inner", _invite, ["bob"]))
    yield Finish(inner)
    return inner


def _grandchild(here: Here) -> Body:
    plan = yield Ask("why", "why to delegate twice")
    got = yield Sub(Script("middle", _middle))
    return {"got": got, "why": plan}


def _incident(here: Here) -> Body:
    words = yield Ask("words", f"what happened in {here.step}")
    page = yield Do("status page", "keyed", {"text": words})
    ticket = yield Do("ticket", "probed", {"text": words, "page": page["url"]})
    yield Do("sms", "blind", {"text": words, "ticket": ticket["url"]})
    yield Write(f"incident-{here.number}.md", f"{words}\n{page['url']}\n{ticket['url']}\n")
    return ticket


def _remind_three_times(here: Here) -> Body:
    for hour in (9, 12, 15):
        yield Do("remind", "blind", f"{here.step} at {hour}")
    return "reminded"


def _own_keys(here: Here) -> Body:
    charged = yield Do("charge", "keyed", {"customer": 7}, key="customer-7-may")
    ticket = yield Do("ticket", "probed", {"step": here.step}, key=f"ticket-{here.step}")
    return [charged["url"], ticket["url"]]


def _decision_chain(here: Here) -> Body:
    choice = yield Ask("choose", "which of three")
    reasons = []
    for _ in range(2):
        reason = yield Ask("reason", "one more reason")
        reasons.append(reason)
    posted = yield Do("proposal", "keyed", {"choice": choice, "reasons": reasons})
    yield Write("proposal.json", json.dumps([choice, reasons], ensure_ascii=False))
    return posted


def _lazy_notes(here: Here) -> Body:
    notes = []
    for part in ("head", "middle", "end"):
        note = yield Ask(part, f"the {part}", lazy=True)
        notes.append(note)
    yield Write(f"note-{here.number}.txt", "\n".join(notes))
    if here.step == "file it":
        yield Do("file", "probed", notes)
    return notes


def _large_report(here: Here) -> Body:
    report = yield Ask("report", "everything, at length", size=20_000)
    posted = yield Do("report", "keyed", {"text": report})
    yield Write("report.txt", report)
    return {"text": report, "url": posted["url"]}


def _deep_plan(here: Here) -> Body:
    yield Write(f"rooms/{here.step}", "clean\n")
    if here.step in ("attic", "cellar"):
        yield Do("tell", "blind", here.step)
    return here.step


def _checked_build(here: Here) -> Body:
    text = yield Ask("text", f"text of {here.step}")
    yield Write(f"{here.step}.txt", f"{text}\nready\n")
    return (yield Do("upload", "keyed", {"file": here.step, "text": text}))


def _guarded_edit(here: Here) -> Body:
    text = yield Ask("edit", f"edit of {here.step}")
    yield Write("guarded.txt", f"intact\n{text}\n")
    yield Do("push", "probed", {"edit": here.step, "text": text})
    return here.step


def _fan_out(here: Here) -> Body:
    words = yield Ask("words", f"one text for all of {here.step}")
    chat = Do("chat", "keyed", {"text": words})
    wiki = Do("wiki", "probed", {"text": words})
    sms = Do("sms", "blind", {"text": words})
    outcomes = yield Together((chat, wiki, sms))
    return [outcome["url"] for outcome in outcomes]


def _email_digest(here: Here) -> Body:
    digest = yield Ask("digest", f"news of {here.step}")
    yield Do("mail", "blind", digest)
    yield Do("archive", "probed", {"day": here.step, "digest": digest})
    return "mailed"


def _translate(here: Here) -> Body:
    text = yield Ask("text", f"{here.step} in plain words")
    yield Write(f"i18n/{here.step}.txt", text)
    yield Do("commit", "probed", {"language": here.step})
    return text


def _vote(here: Here) -> Body:
    choice = yield Ask("choice", f"vote on {here.step}")
    yield Do("vote", "blind", {"on": here.step, "choice": choice})
    seen = yield Ask("seen", "what the others said", lazy=True)
    return [choice, seen]


def _task(name: str, about: str, body: object, plan: object = None, **terms: object) -> Task:
    return Task(Script(name, body, plan), about, **terms)  # type: ignore[arg-type]


PLAIN: tuple[Task, ...] = (
    _task("comment-on-issues", "answer three issues", _comment_on_issues, ["issue 7", "issue 8", "issue 9"]),
    _task("open-tickets", "two tickets a bug, no decisions", _open_tickets, ["bug 1", "bug 2"]),
    _task(
        "page-on-call",
        "page people who cannot be asked back",
        _page_on_call,
        ["disk", "fire"],
        style="drive",
    ),
    _task(
        "pay-invoices", "payments with receipts", _pay_invoices, ["inv-1", "inv-2", "inv-3"], style="drive"
    ),
    _task("refund-orders", "a refund and a mail each", _refund_orders, ["order 4", "order 5"], style="async"),
    _task("wire-money", "payments that cannot be looked up", _wire_money, ["ann", "ben", "cem"]),
    _task("edit-files", "file edits only", _edit_files, ["a.py", "b.py", "c.py", "d.py"], style="drive"),
    _task("rename-module", "edits, then a push", _rename_module, ["rename", "again"]),
    _task(
        "release",
        "a nested plan with one effect of each class",
        _release,
        {"build": ["docs", "wheel"], "publish": ["tag", "upload", {"tell": ["announce"]}]},
        style="drive",
    ),
    _task("triage", "a plan that the model makes", _triage, _triage_plan, style="drive"),
    _task(
        "migrate-fleet",
        "a long plan",
        _migrate_fleet,
        [f"host {n}" for n in range(1, LONG_PLAN_BEATS + 1)],
    ),
    _task("crawl", "open-ended, until it says it is done", _crawl),
    _task("research", "open-ended, with memory", _research, style="async drive"),
    _task("grow-plan", "the plan grows at its end", _grow_plan, ["survey", "mend fence"]),
    _task("unfold-next", "steps unfold into the next ones", _unfold_next, ["split shed", "lock up"]),
    _task("delegate", "a child with a plan and effects", _delegate, ["party"]),
    _task("two-children", "two children in one beat", _two_children, ["count", "count again"], style="async"),
    _task("grandchild", "a child of a child", _grandchild, ["deep"], style="drive"),
    _task("incident", "three classes of effects in one beat", _incident, ["outage", "again"]),
    _task("remind-thrice", "one name, three occurrences", _remind_three_times, ["rent", "dentist"]),
    _task("own-keys", "one charge under the caller's own key, asked for twice", _own_keys, ["one", "two"]),
    _task("decision-chain", "decisions that feed decisions", _decision_chain, ["decide"]),
    _task("lazy-notes", "lazy decisions", _lazy_notes, ["read", "think", "file it"]),
    _task("large-report", "answers and results beyond the inline size", _large_report, ["write", "revise"]),
    _task(
        "deep-plan",
        "four levels of plan",
        _deep_plan,
        {"house": {"up": {"top": ["attic", "loft"]}, "down": ["kitchen", "cellar"]}},
    ),
    _task(
        "checked-build",
        "done only when the check passes",
        _checked_build,
        ["one", "two"],
        checks=("grep -q ready one.txt two.txt",),
        style="drive",
    ),
    _task(
        "guarded-edit",
        "an invariant at each beat's end",
        _guarded_edit,
        ["first", "second"],
        invariants=("grep -q intact guarded.txt",),
    ),
    _task("fan-out", "three effects at once", _fan_out, ["all", "more"], style="async"),
    _task(
        "mail-digest", "notifications with an archive", _email_digest, ["monday", "tuesday"], style="drive"
    ),
    _task("translate", "edits and commits, async", _translate, ["de", "fr", "pl"], style="async drive"),
    _task("vote", "a vote cannot be taken back", _vote, ["name", "logo"], budget="beats=10", style="async"),
)
