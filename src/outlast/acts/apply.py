"""Apply: take over the result of a run into the repository around a person. The work is done in `operations.result`."""

from collections.abc import Iterator
from dataclasses import dataclass

from outlast.acts.plan import ActOutcome, called
from outlast.core.text import count_of, short
from outlast.errors import RunRefused, WorkspaceRefused
from outlast.inspect import find
from outlast.operations import requests, result
from outlast.operations.result import Applied, Wish
from outlast.operations.saves.find import SHORT_CHARS, Saves
from outlast.operations.saves.restore import refuse_held
from outlast.store.protocol import Store, Summary
from outlast.supervisor.control.standing import supervisor_of
from outlast.workspace.result.merge import SPARSE

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """A take-over worked out: `foreseen` is what it would do. `saves` must stay open until it is applied."""

    store: Store
    saves: Saves
    run: Summary
    wish: Wish
    foreseen: Applied
    sentences: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that do the same in the same folder."""
        wish = self.wish
        file = () if wish.to is None else (str(wish.to),)
        more = {"merge": (), "branch": ("--branch", wish.branch), "patch": ("--patch", *file)}
        return ("apply", self.run.run, *more[wish.mode])

    def apply(self, by: str = "") -> ActOutcome:
        """Do it. Raises WorkspaceRefused, with nothing changed, where something stands in the way by now."""
        done, _ = take(self.store, self.saves, self.run, self.wish)
        refuse(done)
        return ActOutcome(
            says=" ".join(sentences(done)),
            link=self.run.run,
            changed=done.how != "nothing",
            folder=done.folder,
        )


def plan(store: Store, saves: Saves, run: Summary, wish: Wish) -> ApplyPlan:
    """Work out what taking over a result would change; nothing is written. Raises RunRefused, WorkspaceRefused, UsageError."""
    foreseen, _ = take(store, saves, run, wish, dry_run=True)
    return ApplyPlan(store, saves, run, wish, foreseen, tuple(sentences(foreseen)))


def take(
    store: Store, saves: Saves, run: Summary, wish: Wish, *, dry_run: bool = False
) -> tuple[Applied, bytes]:
    """Take a result over, or say what that would do; with the patch, if that was wished. A run at work has none yet."""
    root = requests.root_of(store, run.run)
    status = find.shown_status(store, root.state, root.run)
    if status == "running" or store.holder_lives(root.run) or supervisor_of(store, root.run):
        raise RunRefused(
            f"{called(root)} is at work, so its result is not whole",
            hint=f"wait until it has ended (`outlast output {root.run} -f`), or stop it: `outlast kill {root.run}`",
        )
    if wish.mode == "merge":
        refuse_held(saves, saves.saver())
    return result.applied(saves, root, wish, dry_run=dry_run)


def refuse(done: Applied) -> None:
    """Raise WorkspaceRefused, with what is in the way and what to type, if something is."""
    if done.conflicts:
        names = _named([each.path for each in done.conflicts])
        raise WorkspaceRefused(
            f"the result of run {done.run} conflicts with what is here in {count_of(len(done.conflicts), 'file')}: {names}; nothing was changed",
            hint=f"take it to a branch, and merge that by hand: `outlast apply {done.run} --branch NAME`, then `git merge NAME`",
        )
    if done.in_the_way:
        names = _named([f"{each.path} ({each.why})" for each in done.in_the_way])
        files = count_of(len(done.in_the_way), "file")
        raise WorkspaceRefused(
            f"the result of run {done.run} would change {files} that you changed here: {names}; nothing was changed",
            hint=_way_out(done),
        )


def _way_out(done: Applied) -> str:
    if any(each.why == SPARSE for each in done.in_the_way):
        return f"let them in with `git sparse-checkout add`, or take it to a branch: `outlast apply {done.run} --branch NAME`"
    return f"commit them, or put them aside with `git stash --include-untracked`; then `outlast apply {done.run}`"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(short(name, 120) for name in names[:NAMED_MAX]) + (
        f" and {more:,} more" if more > 0 else ""
    )


def sentences(done: Applied) -> Iterator[str]:
    """What was done, or would be."""
    would = "would be " if done.dry_run else ""
    count = count_of(len(done.files), "file")
    origin = f"run {done.run} of task {done.task}"
    if done.taken_back:
        left = f" What it had left is save {done.cut_off[:SHORT_CHARS]}." if done.cut_off else ""
        yield f"An earlier try was cut off; what was here before it came back first.{left}"
    if done.conflicts:
        yield f"{count_of(len(done.conflicts), 'file')} of the result of {origin} {_is(done.conflicts)} in conflict with what is here."
    elif done.in_the_way:
        yield f"The result of {origin} would change {count_of(len(done.in_the_way), 'file')} that you changed here."
    elif done.how == "nothing":
        yield f"The result of {origin} is in {done.folder} already: nothing changes."
    elif done.mode == "branch":
        yield f"Branch {done.branch} {'would have' if done.dry_run else 'has'} the result of {origin}: commit {done.commit[:SHORT_CHARS]}."
    elif done.mode == "patch":
        yield f"The patch of {origin} changes {count}."
    else:
        yield f"{count} of {done.folder} {would}changed to the result of {origin}."
        yield from _merged(done)
    if done.here_already and done.how != "nothing":
        yield f"{count_of(len(done.here_already), 'file')} {_is(done.here_already)} here already as the result has {'it' if len(done.here_already) == 1 else 'them'}."
    yield from _beside(done)


def _is(found: tuple[object, ...]) -> str:
    return "is" if len(found) == 1 else "are"


def _merged(done: Applied) -> Iterator[str]:
    branch = done.branch or "HEAD"
    would = "would be" if done.dry_run else "is"
    if done.how == "files":
        yield "They are changes that nobody committed yet; no commit is made."
    elif done.how == "fast-forward":
        yield f"{branch} {would} moved forward to {done.commit[:SHORT_CHARS]}, with the commits of the run."
    elif done.how == "merge":
        yield f"{branch} {would} merged with the commits of the run, in your name. No hook {'would run' if done.dry_run else 'ran'}."
    elif done.how == "merge-ready":
        yield f"The merge {would} ready: `git commit` makes it, with your hooks and your signature."


def _beside(done: Applied) -> Iterator[str]:
    if done.secrets:
        one = len(done.secrets) == 1
        yield f"{count_of(len(done.secrets), 'untracked secret')} of the run, kept apart, {'stays' if one else 'stay'} apart: {_named(list(done.secrets))}."
    if done.left_out:
        yield f"No save holds {count_of(len(done.left_out), 'file')} of the run: {_named([each.path for each in done.left_out])}."
    if done.submodules:
        yield f"Submodules name other commits: {_named(list(done.submodules))}; `git submodule update` brings their files."
    if done.submodules_left:
        stays = "what the run changed in them and did not commit stays with it"
        yield f"Of submodules only commits come: {stays}: {_named(list(done.submodules_left))}."
