"""Finds every process of an attempt, and stops it, whatever it does to stay.

See `search` for what belongs to an attempt, `stop` for how it ends."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from outlast.processes.cgroups import Group
from outlast.processes.proc import (
    Proc,
    all_processes,
    ancestors,
    descendants,
    describe,
    environ_value,
    hides_environ,
    look,
    newest_first,
)
from outlast.processes.signals import OnWait, is_running, send, wait_gone
from outlast.processes.timing import Timing

MARK = b"OUTLAST_ATTEMPT"
CALL_MARK = b"OUTLAST_CALL"
PROGRAMS_MARK = b"OUTLAST_PROGRAMS"
ACTS_MARK = b"OUTLAST_ACTS"
_WORKER = "multiprocessing"  # in the command line of a worker, which does the acts of programs without being started by one
_FIRST = 1  # the process that adopts orphans, unless one above them does
FREEZE_LOOKS_MAX = 50
CALM_LOOKS = 3
NAMED_MAX = 64
NAMES_MAX = 1024

Identity = tuple[int, int]


def find(
    run: str, *, roots: Iterable[int] = (), spare: Collection[int] = (), epoch: int | None = None
) -> list[Proc]:
    """All living processes of an attempt, or of every attempt of the run without `epoch`.

    A root counts with all its descendants; pass none whose pid may be another process by now. Never found: this process,
    its ancestors, those in `spare`, and their helpers, which are in the process group of one of these and carry no other
    mark than it.
    """
    return list(search(run, roots=roots, spare=spare, epoch=epoch))


def search(
    run: str, *, roots: Iterable[int] = (), spare: Collection[int] = (), epoch: int | None = None
) -> Iterator[Proc]:
    """Yield each process as soon as it is found, so that `stop` can freeze it before it forks again.

    Every process of an attempt starts with OUTLAST_ATTEMPT=<run>.<epoch>. A process belongs to the attempt if it carries
    this mark, descends from a given process, or is in a session or process group led by one that belongs to it. A mark
    can be overwritten and a parent can die, but hardly both, and not while the guardian adopts orphans.
    """
    return _search(lambda pid: _is_of(environ_value(pid, MARK), run, epoch), set(roots), _Spared.of(spare))


def search_call(call: str, *, root: Proc | None = None) -> Iterator[Proc]:
    """All living processes started for one call of a script: by its mark, and below its first process."""
    mark = os.fsencode(call)
    roots = {root.pid} if root is not None and is_running(root) else set()
    return _search(lambda pid: environ_value(pid, CALL_MARK) == mark, roots, _Spared.of(()))


def search_started(marks: Collection[str], firsts: Collection[Identity] = ()) -> Iterator[Proc]:
    """All living processes of calls: by the mark that one was started with, and below its first process while that lives.

    Never found: this process and its ancestors.
    """
    named = frozenset(map(os.fsencode, marks))
    roots = {pid for pid, ticks in firsts if (there := look(pid)) is not None and there.start_ticks == ticks}

    def is_marked(pid: int) -> bool:
        programs = (environ_value(pid, PROGRAMS_MARK) or b"").split()
        return environ_value(pid, CALL_MARK) in named or not named.isdisjoint(programs)

    me = os.getpid()
    return _search(is_marked, roots, _Spared(frozenset({me, *(proc.pid for proc in ancestors(me))}), {}))


@dataclass(frozen=True, slots=True)
class ActProcesses:
    """Processes that acts of a run started: of this run alone, and those that belong to acts of other runs, too."""

    own: list[Proc]
    shared: list[Proc]


def search_acts(run: str, since_s: float, act_lock: os.PathLike[str]) -> ActProcesses:
    """All living processes that an act of this run started after that time (seconds since boot) and left behind.

    Such a process carries OUTLAST_ACTS=<run>.<epoch>; a fork of the program without an exec has the act lock open. Never
    found: this process, its ancestors and its descendants.
    """
    since = since_s * os.sysconf("SC_CLK_TCK")
    me, named = os.getpid(), {os.fsencode(os.path.realpath(act_lock)) + end for end in (b"", b" (deleted)")}
    among = all_processes()
    spared = _Spared(frozenset({me, *descendants(me, among), *(proc.pid for proc in ancestors(me))}), {})
    shared: set[int] = set()

    def is_marked(pid: int) -> bool:
        marks = (environ_value(pid, ACTS_MARK) or b"").split()
        if not any(_is_of(mark, run, None) for mark in marks):
            return _holds(pid, named)
        there = among.get(pid) or look(pid)
        if there is None or (there.start_ticks < since and _WORKER not in describe(pid)):
            return False
        if not all(_is_of(mark, run, None) for mark in marks):
            shared.add(pid)
        return True

    found = list(_search(is_marked, set(), spared))
    return ActProcesses(
        [proc for proc in found if proc.pid not in shared], [proc for proc in found if proc.pid in shared]
    )


def search_hidden(since_s: float) -> list[Proc]:
    """Living processes of our user that were started after that time (seconds since boot), and of which nobody can tell for what.

    They hide their environment: not dumpable, or with a title written over it. Left out is what a living program that is
    older has started, unless that may have adopted it: the first process, a child of it, and our ancestors.
    """
    since, mine = since_s * os.sysconf("SC_CLK_TCK"), os.geteuid()
    among, above = all_processes(), {proc.pid for proc in ancestors(os.getpid())}
    ours = {os.getpid(), *above, *descendants(os.getpid(), among)}
    found = []
    for proc in among.values():
        is_known = proc.pid in ours or proc.is_zombie or proc.uid != mine or proc.start_ticks < since
        if is_known or not hides_environ(proc.pid):
            continue
        oldest = proc
        while (parent := among.get(oldest.ppid)) is not None and parent.start_ticks >= since:
            oldest = parent
        if parent is None or parent.ppid <= _FIRST or parent.pid in above:
            found.append(proc)
    return found


def _holds(pid: int, named: set[bytes]) -> bool:
    """Whether a process has one of these files open for reading alone, as a fork has. One that holds its run is fenced."""
    folder = f"/proc/{pid}/fd".encode()
    with contextlib.suppress(OSError):
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(folder + b"/" + fd) in named and not _can_write(pid, fd):
                    return True
    return False


def _can_write(pid: int, fd: bytes) -> bool:
    with open(f"/proc/{pid}/fdinfo/{os.fsdecode(fd)}") as lines:
        flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _search(is_marked: Callable[[int], bool], above: set[int], spared: "_Spared") -> Iterator[Proc]:
    among: dict[int, Proc] = {}
    ours: set[int] = set()
    for proc in newest_first():
        if proc.is_zombie or proc.pid in ours or among.get(proc.pid) == proc:
            continue
        among[proc.pid] = proc
        # The mark comes last: reading it waits for a process that is in the middle of a fork.
        is_led = proc.ppid in above or not ours.isdisjoint((proc.ppid, proc.pgid, proc.sid))
        if (is_led or is_marked(proc.pid)) and not spared.has(proc):
            ours.add(proc.pid)
            yield proc
    below = {pid for root in above & among.keys() for pid in (root, *descendants(root, among))}
    while fresh := [
        proc
        for proc in among.values()
        if proc.pid not in ours
        and (proc.pid in below or not ours.isdisjoint((proc.ppid, proc.pgid, proc.sid)))
        and not spared.has(proc)
    ]:
        ours.update(proc.pid for proc in fresh)
        yield from fresh


def ancestor_in_run(run: str) -> Proc | None:
    """Our nearest ancestor that belongs to an attempt of this run: what we would stop has started us."""
    return next(
        (proc for proc in ancestors(os.getpid()) if _is_of(environ_value(proc.pid, MARK), run, None)), None
    )


def _is_of(mark: bytes | None, run: str, epoch: int | None) -> bool:
    whose, dot, number = (mark or b"").rpartition(b".")
    if not dot or whose != os.fsencode(run) or not number.isdigit():
        return False
    return epoch is None or int(number) == epoch


@dataclass(frozen=True, slots=True)
class _Spared:
    """Processes that are never found: pids, and by process group the mark (mostly none) that makes a helper."""

    pids: frozenset[int]
    kin: Mapping[int, bytes | None]

    @classmethod
    def of(cls, spare: Collection[int]) -> "_Spared":
        me = os.getpid()
        families = [proc for pid in (*spare, me) if (proc := look(pid)) is not None]
        return cls(
            frozenset({me, *spare, *(proc.pid for proc in ancestors(me))}),
            {proc.pgid: environ_value(proc.pid, MARK) for proc in families},
        )

    def has(self, proc: Proc) -> bool:
        if proc.pid in self.pids:
            return True
        return proc.pgid in self.kin and self.kin[proc.pgid] == environ_value(proc.pid, MARK)


@dataclass(frozen=True, slots=True)
class ReapReport:
    """The fate of the processes, in words, at most `NAMED_MAX` of each kind and then how many more.

    Stopped: ended by the first signal. Killed: had to be killed. Escaped: another user's, or does not die.
    """

    stopped: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()


def stop(
    find_again: Callable[[], Iterable[Proc]],
    *,
    first: int | None = signal.SIGTERM,
    grace_s: float,
    on_wait: OnWait | None = None,
    group: Group | None = None,
    timing: Timing | None = None,
) -> ReapReport:
    """Stop all that `find_again` finds: ask with a signal, wait up to `grace_s`, then freeze and kill the rest.

    Returns when another look finds nobody, or after `Timing.kill_limit_s` of killing; the rest has escaped and is named.
    `on_wait` is called while waiting; if it returns true, the grace ends. All processes in `group` die at once.
    """
    stopping = _Stopping(find_again, on_wait, timing or Timing.current())
    if first is not None:
        stopping.ask(first, grace_s)
    stopping.kill(group)
    return stopping.reaped()


@contextlib.contextmanager
def _urgently() -> Iterator[None]:
    """Run before ordinary processes, if we may: beside 200 that fork we had a two-hundredth of a processor."""
    before, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        yield  # an ordinary user: slower, but still bounded
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, priority)


@dataclass(slots=True)
class _Stopping:
    """One call of `stop` in progress: the processes it met, and what happened to them."""

    find_again: Callable[[], Iterable[Proc]]
    on_wait: OnWait | None
    timing: Timing
    names: dict[Identity, str] = field(default_factory=dict)
    stopped: set[Identity] = field(default_factory=set)
    killed: set[Identity] = field(default_factory=set)
    escaped: set[Identity] = field(default_factory=set)
    gone: set[Identity] = field(default_factory=set)

    def ask(self, first: int, grace_s: float) -> None:
        """Send the first signal to each, also to later ones, until all are gone or the grace is over.

        Parents first: a shell that sees its command die before it gets the signal itself starts the next one.
        """
        deadline = time.monotonic() + grace_s
        signalled: set[Identity] = set()
        while fresh := self._fresh(signalled):
            waiting = [proc for proc in fresh if self._ask(proc, first)]
            left = wait_gone(waiting, deadline - time.monotonic(), self.on_wait)
            self.stopped |= {proc.identity for proc in waiting} - {proc.identity for proc in left}
            if left or time.monotonic() >= deadline:
                return

    def _fresh(self, signalled: set[Identity]) -> list[Proc]:
        with _urgently():
            fresh = [proc for proc in self.find_again() if proc.identity not in signalled]
        signalled.update(proc.identity for proc in fresh)
        return _parents_first(fresh)

    def _ask(self, proc: Proc, first: int) -> bool:
        """Whether the process got the signal, so that it is worth waiting for."""
        self._name(proc)
        sent = send(proc, first)
        if sent == "refused":
            self.escaped.add(proc.identity)
        elif proc.state == "T":
            send(proc, signal.SIGCONT)  # a stopped process takes no signal until it continues
        return sent == "sent"

    def kill(self, group: Group | None) -> None:
        """Freeze and kill, again and again, until several looks in a row find nobody."""
        deadline = time.monotonic() + self.timing.kill_limit_s
        calm = 0
        while calm < CALM_LOOKS and time.monotonic() < deadline:
            if group is not None:
                group.kill()
            with _urgently():
                frozen, is_calm = self._freeze(deadline)
                self._kill(frozen)
            calm = calm + 1 if is_calm else 0
            if self.on_wait is not None:
                self.on_wait()
        for proc in self.find_again() if calm < CALM_LOOKS else ():
            self._escape(proc)

    def _freeze(self, deadline: float) -> tuple[list[Proc], bool]:
        """Stop each as soon as it is found, until a look finds nobody that still runs; and whether none ever did."""
        frozen: dict[Identity, Proc] = {}
        met_any = False
        for _ in range(FREEZE_LOOKS_MAX):
            fresh = False
            for proc in self.find_again():
                if any(proc.identity in known for known in (frozen, self.escaped, self.gone)):
                    continue
                fresh = met_any = True
                sent = send(proc, signal.SIGSTOP)
                if sent == "sent":
                    frozen[proc.identity] = proc
                elif sent == "refused":
                    self._escape(proc)
                else:
                    self.gone.add(proc.identity)
            if not fresh or time.monotonic() >= deadline:
                break
        return list(frozen.values()), not met_any

    def _kill(self, frozen: Iterable[Proc]) -> None:
        for proc in frozen:
            self._name(proc)
            send(proc, signal.SIGKILL)
        left = wait_gone(frozen, self.timing.die_limit_s)
        self.killed.update(proc.identity for proc in frozen)
        for proc in left:
            self.killed.discard(proc.identity)
            self._escape(proc)

    def _escape(self, proc: Proc) -> None:
        self._name(proc)
        self.escaped.add(proc.identity)

    def _name(self, proc: Proc) -> None:
        if len(self.names) < NAMES_MAX and proc.identity not in self.names:
            self.names[proc.identity] = describe(proc.pid)

    def reaped(self) -> ReapReport:
        """The fate of all processes that were met."""
        return ReapReport(*(self._named(which) for which in (self.stopped, self.killed, self.escaped)))

    def _named(self, which: set[Identity]) -> tuple[str, ...]:
        named = [self.names[identity] for identity in sorted(which) if identity in self.names][:NAMED_MAX]
        more = len(which) - len(named)
        return (*named, f"and {more} more") if more else tuple(named)


def _parents_first(procs: list[Proc]) -> list[Proc]:
    """Sorted so that a parent comes before its children."""
    parents = {proc.pid: proc.ppid for proc in procs}
    depths: dict[int, int] = {}
    for proc in procs:
        above, pid = {proc.pid}, proc.ppid
        while pid in parents and pid not in above:
            above.add(pid)
            pid = parents[pid]
        depths[proc.pid] = len(above)
    return sorted(procs, key=lambda proc: depths[proc.pid])
