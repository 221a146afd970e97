"""The process that sends what is in the outbox: no part of a run, waited for by nobody, bounded in time and tries.

If it is killed, the next one sends what was not begun. What was begun may have arrived: it is not repeated, and said."""

import contextlib
import fcntl
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from outlast import settings
from outlast.core.setting_values import quiet_hours
from outlast.core.setting_values.quiet_hours import QuietHours
from outlast.errors import OutlastError
from outlast.notifications import channel_health, message, outbox, page_address
from outlast.notifications.channels import selection
from outlast.notifications.channels.selection import Channel
from outlast.notifications.links import Links
from outlast.notifications.message import Message
from outlast.notifications.outbox import Sending, Step
from outlast.notifications.post import Unsent
from outlast.notifications.timing import Timing
from outlast.store.local import Local

PLAIN = "--plain"  # no link has a token
CUT_OFF = "it was cut off while it was sent: whether it arrived is not known"


def start(local: Local, *, within_run: bool = False) -> None:
    """Start the process, if something is in the outbox: for each notice, at `resume --all` and with the page.

    Returns at once, and raises nothing: no run ends for a notice. `within_run`: a process inside of a run asks for it, whose
    settings may be the agent's own, so no link with a token is made.
    """
    if not outbox.waiting(local):
        return
    given = {
        name: value for prefix in selection.PREFIXES for name, value in settings.given_for(prefix).items()
    }
    variables = settings.environment(without="OUTLAST_", **given, **settings.timing_given())
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "outlast.notifications.delivery", str(local.folder), *([PLAIN] if within_run else [])],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env=variables, preexec_fn=_unblock,
        )  # fmt: skip
        # Reaped when it ends, so that it is no zombie of a process of ours that lives on.
        threading.Thread(target=process.wait, name="outlast-reap", daemon=True).start()


def _unblock() -> None:
    """Unblock signals in a new process: a supervisor reads them from a file, its children take them as usual."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def own_settings() -> settings.Settings:
    """The settings of the user, without those of any repository. Raises BadSetting."""
    return settings.load(Path("/"))


class Delivery:
    """Sends what is in the outbox of one state folder."""

    def __init__(self, local: Local, timing: Timing | None = None, *, tokens: bool = True) -> None:
        self._local, self._timing, self._tokens = local, timing or Timing.current(), tokens
        self._links = Links(local, self._timing)

    def carry(self) -> None:
        """Send everything that may be sent now; then one process waits for the end of the quiet hours, and sends the rest."""
        self._send_all()
        if not outbox.waiting(self._local):
            return
        with contextlib.suppress(OSError), open(self._local.notices / ".waits", "ab") as waits:
            try:
                fcntl.flock(waits, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another one waits already
            while outbox.waiting(self._local) and self._local.folder.is_dir():
                hours = quiet_hours.read(own_settings()["notify_quiet"])
                if hours is not None and hours.holds(_here()):
                    left_s = (hours.ends(_here()) - _here()).total_seconds()
                    time.sleep(min(self._timing.quiet_look_s, max(left_s, self._timing.again_s)))
                    continue
                before = outbox.waiting(self._local)
                self._send_all()
                if outbox.waiting(self._local) >= before:
                    return  # others are sending it

    def _send_all(self) -> None:
        for _ in range(1 + outbox.waiting(self._local) // outbox.TAKEN_MAX):
            self._send_some()

    def _send_some(self) -> None:
        chosen = own_settings()
        channels = selection.of(chosen)
        hours, passes = quiet_hours.read(chosen["notify_quiet"]), chosen["notify_urgent"]
        page = page_address.reachable(self._local, chosen["ui_url"])
        with outbox.taken(self._local, lambda each: self._holds(each, hours, urgent_passes=passes)) as free:
            now = datetime.now(UTC)
            late = [each for each in free if each.held]
            if len(late) > 1 and not (hours is not None and hours.holds(_here())):
                whole = message.summary(tuple(each.notice for each in late), page, now)
                self._send(whole, late, channels)
                free = [each for each in free if not each.held]
            for each in free:
                made = self._links if self._tokens else None
                self._send(message.of(each.notice, page, made, now), [each], channels)

    def _holds(self, each: Sending, hours: QuietHours | None, *, urgent_passes: bool) -> bool:
        """Whether a notice waits for the end of the quiet hours."""
        if hours is None or not hours.holds(_here()) or (urgent_passes and each.notice.is_urgent):
            return False
        if not each.held:
            each.record(Step(channel="", did="held", at=datetime.now(UTC)))
        return True

    def _send(self, whole: Message, of: Sequence[Sending], channels: Sequence[Channel]) -> None:
        """Send one message for these notices on every channel that still wants it. A dead one delays the others once."""
        self._note_cut_off(of, channels)
        wait_s = self._timing.again_s
        for _ in range(outbox.TRIES_MAX):
            for channel in channels:
                wanting = [each for each in of if each.wants(channel.name)]
                if wanting:
                    self._try(channel, whole, wanting)
            if not any(each.wants(channel.name) for each in of for channel in channels):
                break
            time.sleep(wait_s)
            wait_s *= 5
        for each in of:
            each.close()

    def _try(self, channel: Channel, whole: Message, of: Sequence[Sending]) -> None:
        """One try on one channel. That it begins is on record before, what became of it after."""
        for each in of:
            each.record(Step(channel=channel.name, did="begun", at=datetime.now(UTC)))
        try:
            words = channel.send(whole)
        except Unsent as problem:
            for each in of:
                each.record(
                    Step(
                        channel=channel.name,
                        did="failed",
                        at=datetime.now(UTC),
                        words=str(problem),
                        again=problem.again,
                    )
                )
            if not any(each.wants(channel.name) for each in of):
                channel_health.failed(self._local, channel.name, str(problem), datetime.now(UTC))
            return
        for each in of:
            each.record(Step(channel=channel.name, did="sent", at=datetime.now(UTC), words=words))
        channel_health.sent(self._local, channel.name, datetime.now(UTC))

    def _note_cut_off(self, of: Sequence[Sending], channels: Sequence[Channel]) -> None:
        """Say of what a process before us began and did not end that nobody knows whether it arrived."""
        for each in of:
            for channel in channels:
                last = each.last(channel.name)
                if last is not None and last.did == "begun":
                    each.record(Step(channel=channel.name, did="failed", at=datetime.now(UTC), words=CUT_OFF))
                    channel_health.failed(self._local, channel.name, CUT_OFF, datetime.now(UTC))


def _here() -> datetime:
    """The time by the clock of this machine."""
    return datetime.now(UTC).astimezone()


def main() -> None:
    """`python -m outlast.notifications.delivery FOLDER [--plain]`"""
    with contextlib.suppress(OutlastError, OSError, KeyboardInterrupt):
        Delivery(Local(Path(sys.argv[1])), tokens=PLAIN not in sys.argv[2:]).carry()


if __name__ == "__main__":
    main()
