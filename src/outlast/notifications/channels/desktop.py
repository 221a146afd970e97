"""The desktop of this machine, by `notify-send`. Other users can read its command line, so no link with a token is in it."""

import shutil
import subprocess

from outlast import settings
from outlast.notifications.message import Message
from outlast.notifications.post import Unsent
from outlast.notifications.timing import Timing

PROGRAM = "notify-send"
_CRITICAL = 5


class Desktop:
    """A notification on the screen, where there is one."""

    name = "desktop"

    def send(self, message: Message) -> str:
        """Show it. Raises Unsent."""
        program = shutil.which(PROGRAM)
        if program is None:
            raise Unsent(f"there is no {PROGRAM} on the PATH; the package libnotify-bin has it")
        urgency = "critical" if message.priority >= _CRITICAL else "normal"
        text = "\n".join(filter(None, (message.text, message.command)))
        words = [program, "--app-name=outlast", f"--urgency={urgency}", "--", message.title, _escaped(text)]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=Timing.current().desktop_s,
                env=settings.environment(without="OUTLAST_"),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unsent(f"{PROGRAM} did not end in time") from None
        except OSError as error:
            raise Unsent(f"{PROGRAM}: {error.strerror}") from error
        if done.returncode:
            reply = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise Unsent(f"{PROGRAM} ended with {done.returncode}{f': {reply:.120}' if reply else ''}")
        return "shown"


def _escaped(text: str) -> str:
    """Desktops read markup in the body."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
