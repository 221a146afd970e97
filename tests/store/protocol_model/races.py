"""Exhaustive small models beside the model: statements that pass each other in READ COMMITTED, and subscription numbers.

python -m tests.store.protocol_model.races          both; exit 0 when the fixed rules hold and every broken variant is found broken
"""

import itertools
import sys
from collections.abc import Iterator

# -- claim by silence x renewal x append ------------------------------------------------------------------------------------
# A statement sees the snapshot of its beginning; a row that it locks it sees again, newest (EvalPlanQual); other rows it does not.


def _programs(locks_session: bool, two_statements: bool) -> dict[str, list[str]]:
    claim = (
        ["snap", "lock_s", "see_s", "lock_l", "see_l", "commit"]
        if locks_session
        else ["snap", "old_s", "lock_l", "see_l", "commit"]
    )
    renew = (
        ["snap", "lock_s", "beat", "snap", "old_l", "commit"]
        if two_statements
        else ["snap", "lock_s", "beat", "old_l", "commit"]
    )
    return {"claim": claim, "renew": renew, "append": ["share_l", "see_l", "commit"]}


def _runs(programs: dict[str, list[str]]) -> Iterator[tuple[dict[str, object], list[str]]]:
    """Every interleaving to its end: what each was told, and the way there."""
    names = list(programs)
    start = ((0,) * len(names), (7, 1), tuple(None for _ in names), (), tuple(() for _ in names), ())
    seen, todo = set(), [(start, [])]
    while todo:
        state, way = todo.pop()
        pcs, (beats, epoch), snaps, locks, told, writes = state
        moved = False
        for i, name in enumerate(names):
            if pcs[i] >= len(programs[name]):
                continue
            op = programs[name][pcs[i]]
            new_locks, new_snaps, new_told, new_writes, db = (
                dict(locks),
                list(snaps),
                list(told),
                dict(writes),
                (beats, epoch),
            )
            if op.startswith(("lock", "share")):
                row, mode = op[-1], "s" if op.startswith("share") else "x"
                others = [m for (r, who), m in new_locks.items() if r == row and who != name]
                if any("x" in (mode, m) for m in others):
                    continue  # waits
                new_locks[row, name] = mode
            elif op == "snap":
                new_snaps[i] = (beats, epoch)
            elif op == "see_s":
                new_told[i] += (("silent", beats == 7),)
            elif op == "old_s":
                new_told[i] += (("silent", snaps[i][0] == 7),)
            elif op == "see_l":
                new_told[i] += (("epoch", epoch == 1),)
            elif op == "old_l":
                new_told[i] += (("epoch", snaps[i][1] == 1),)
            elif op == "beat":
                new_writes[name] = "beat"
            elif op == "commit":
                if name == "claim" and all(ok for _, ok in new_told[i]):
                    db = (beats, 2)
                if name == "renew":
                    db = (beats + 1, epoch)
                new_locks = {key: m for key, m in new_locks.items() if key[1] != name}
            pcs2 = tuple(pc + (j == i) for j, pc in enumerate(pcs))
            after = (
                pcs2,
                db,
                tuple(new_snaps),
                tuple(sorted(new_locks.items())),
                tuple(new_told),
                tuple(sorted(new_writes.items())),
            )
            moved = True
            if after not in seen:
                seen.add(after)
                todo.append((after, [*way, f"{name}.{op}"]))
        if not moved:
            if all(pc == len(programs[name]) for pc, name in zip(pcs, names, strict=True)):
                yield {name: all(ok for _, ok in told[i]) for i, name in enumerate(names)}, way
            else:
                yield {"deadlock": True}, way


def races() -> int:
    wrong = 0
    for locks_session, two in itertools.product((False, True), repeat=2):
        ends = list(_runs(_programs(locks_session, two)))
        bad = [way for told, way in ends if told.get("deadlock") or (told["claim"] and told["renew"])]
        expected = not (locks_session and two)
        wrong += bool(bad) != expected
        print(
            f"claim {'locks the session first' if locks_session else 'as written':24} renewal in {'two statements' if two else 'one statement ':14}: "
            f"{len(ends)} ends, {len(bad)} where both hold the run{': ' + ' '.join(min(bad, key=len)) if bad else ''}"
        )
    return wrong


# -- subscription numbers ---------------------------------------------------------------------------------------------------


def _heard(ops: tuple[str, ...], number: str, cursor_by: str, jump: bool) -> bool | None:
    """Play: b/c = begin and commit of a writer (two of them), x = an xid is used up, nothing logged, r = read, K = server killed,
    F = failover that loses what was committed since the last S (shipped). None: no such sequence. Else: all that is there was heard."""
    next_xid, logged, sequence, base = 10, 9, 0, 0
    open_: dict[str, tuple[int, int]] = {}
    events: list[tuple[int, int]] = []  # n, id
    shipped, heard, cursor, ids = 0, set(), 0, itertools.count()
    for op in (*ops, "end"):
        if op[0] == "b":
            if op[1] in open_:
                return None
            sequence += 1
            open_[op[1]] = (next_xid, base + (next_xid << 4) if number == "xid" else sequence)
            next_xid += 1
        elif op[0] == "c":
            if op[1] not in open_:
                return None
            xid, n = open_.pop(op[1])
            logged = max(logged, xid)
            events.append((n, next(ids)))
        elif op == "x":
            next_xid += 1
        elif op == "S":
            shipped = len(events)
        elif op in ("K", "F"):
            open_.clear()
            if op == "F":
                del events[shipped:]
                logged = max([9, *((n - base >> 4) for n, _ in events if number == "xid" and n >= base)])
                if jump:
                    base += 1 << 12
            next_xid = max(logged + 1, 10)
        if op in ("r", "end"):
            if op == "end":
                open_.clear()
            xmin = min([x for x, _ in open_.values()], default=next_xid)
            bound = base + (xmin << 4) if number == "xid" else 1 << 60
            news = sorted((n, i) for n, i in events if cursor < n < bound)
            heard |= {i for _, i in news}
            if news:
                cursor = news[-1][0]
            if cursor_by == "bound" and number == "xid":
                cursor = max(cursor, bound - 1)
    return all(i in heard for _, i in events)


def numbers(depth: int = 7) -> int:
    wrong = 0
    for title, alphabet, number, cursor_by, jump, holds in (
        ("sequence", "b1 b2 c1 c2 r", "sequence", "event", False, False),
        ("xid below xmin", "b1 b2 c1 c2 x r", "xid", "event", False, True),
        ("xid, server killed, cursor = last event", "b1 c1 x r K", "xid", "event", False, True),
        ("xid, server killed, cursor = bound", "b1 c1 x r K", "xid", "bound", False, False),
        ("xid, failover loses commits, as written", "b1 c1 S r F", "xid", "event", False, False),
        ("xid, failover loses commits, base jumps", "b1 c1 S r F", "xid", "event", True, True),
    ):  # fmt: skip
        played, bad = 0, None
        for length in range(1, depth + 1):
            for ops in itertools.product(alphabet.split(), repeat=length):
                ok = _heard(ops, number, cursor_by, jump)
                played += ok is not None
                if ok is False:
                    bad = ops
                    break
            if bad:
                break
        wrong += (bad is None) != holds
        print(
            f"{title:44}: {played:6} sequences, {'never skips' if bad is None else 'skips after ' + ' '.join(bad)}"
        )
    return wrong


if __name__ == "__main__":
    sys.exit(1 if races() + numbers() else 0)
