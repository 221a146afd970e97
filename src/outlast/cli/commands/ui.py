"""`outlast ui`: its command line and tokens. The page is in `outlast.web`; its address is the one line on stdout."""

import argparse
import os
import signal
import stat
import sys
import threading
import traceback
from pathlib import Path

from outlast import settings
from outlast.cli import store_option
from outlast.cli.terminal import messages
from outlast.core.setting_values import addresses
from outlast.errors import UsageError
from outlast.notifications import delivery, page_address
from outlast.supervisor.notify import is_within_run
from outlast.web.app import App
from outlast.web.http import guard, peers, server
from outlast.web.site import Site

PORT = 8477
HOST = "127.0.0.1"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "ui", help="all runs, live on a web page, with buttons",
        description="Serve a web page until Ctrl-C: all runs, what each one spends, what was saved and why, and what needs\n"
        "you. On 127.0.0.1 it answers only your user; on other addresses it asks for the token it prints.",
        epilog="example: outlast ui --open\n         outlast ui --host 0.0.0.0",
    )  # fmt: skip
    command.add_argument(
        "--host",
        default=HOST,
        metavar="ADDRESS",
        help=f"address to listen on (default {HOST}); any other needs a token",
    )
    command.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="N",
        help=f"port (default {PORT}, or the next free one); 0: any free one",
    )
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command.add_argument("--read-only", action="store_true", help="no buttons: the page only shows")
    command.add_argument("--with-token", action="store_true", help="ask for a token on this machine too")
    command.add_argument(
        "--token-file",
        metavar="FILE",
        help="read the token from a file that only you can read",
    )
    command.add_argument(
        "--url",
        metavar="URL",
        help="public address of your proxy in front of the page (default: the setting ui_url); asks for a token",
    )
    command.set_defaults(handler=serve)


def serve(arguments: argparse.Namespace) -> int:
    """`outlast ui`"""
    if not 0 <= arguments.port <= 65535:
        raise UsageError(
            f"--port must be 0 to 65535, got {arguments.port}",
            hint="`outlast ui --port 0` takes any free port",
        )
    messages.refuse_blank(arguments, "--host")
    url = _url(arguments)
    place = store_option.location(arguments)
    token = _token(arguments)
    listening, taken = server.listen(arguments.host, arguments.port)
    host, port = listening.getsockname()[:2]
    if taken:
        words = "port" if len(taken) == 1 else "ports"
        messages.tell(
            f"{words} {', '.join(map(str, taken))} {'is' if len(taken) == 1 else 'are'} taken; using {port}"
        )
    token = token or _needed(host, url)
    keeper = guard.Guard(host, port, token=token, read_only=arguments.read_only, name=arguments.host, url=url)
    site = Site(place, keeper, by=f"{settings.user_name()} via ui")
    app = App(site, _trace if arguments.debug else lambda error: None)
    if not place.exists():
        messages.tell(f"no store at {place.local.folder} yet; runs appear here as soon as one starts")
    _serve(server.Server(listening, app.handle, is_stranger=keeper.is_stranger), site, arguments, token)
    return 0


def _url(arguments: argparse.Namespace) -> str:
    """The public address of the page: what is typed, else the setting."""
    if arguments.url is None:
        return str(settings.load()["ui_url"])
    try:
        addresses.site(arguments.url)
    except UsageError as error:
        raise UsageError(
            f"--url must be the address of a site, got {arguments.url!r:.100}", hint=error.hint
        ) from error
    return str(arguments.url)


def _serve(serving: server.Server, site: Site, arguments: argparse.Namespace, token: str) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    site.start()
    serving.start()
    try:
        address = _say(site.guard, token)
        if arguments.open:
            _open(_private(site.guard) if token else address)
        delivery.start(site.place.local, within_run=is_within_run())
        with page_address.announced(site.place.local, _from_elsewhere(site.guard)):
            ended.wait()
    finally:
        site.live.stop()
        serving.stop()
        site.stop()


def _say(keeper: guard.Guard, token: str) -> str:
    """Print the address with its token: the first on stdout, further ones on stderr."""
    query = f"/?token={token}" if token else "/"
    found = [f"http://{_bracketed(each)}:{keeper.port}{query}" for each in guard.addresses(keeper.host)]
    found = [f"{keeper.url}{query}", *found] if keeper.url else found
    messages.say(found[0])
    sys.stdout.flush()
    for other in found[1:]:
        messages.tell(f"also {other}")
    messages.tell("Ctrl-C ends it" if not keeper.read_only else "read-only; Ctrl-C ends it")
    return found[0]


def _from_elsewhere(keeper: guard.Guard) -> str:
    """Where a phone reaches the page, for the links in notices; empty where it listens on this machine alone."""
    if keeper.url:
        return keeper.url
    if not guard.needs_token(keeper.host):
        return ""
    return f"http://{_bracketed(next(iter(guard.addresses(keeper.host))))}:{keeper.port}"


def _private(keeper: guard.Guard) -> str:
    """An address for the browser's command line, which every user can read: its code works once, for our user."""
    found = "127.0.0.1" if keeper.host == "0.0.0.0" else "::1" if keeper.host == "::" else keeper.host
    return f"http://{_bracketed(found)}:{keeper.port}/?token={keeper.code()}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _open(address: str) -> None:
    """Open a browser. Without one, the printed address is enough."""
    import webbrowser

    def try_it() -> None:
        try:
            opened = settings.has_screen() and webbrowser.open(address)
        except Exception:
            opened = False
        if not opened:
            messages.tell("outlast cannot open a browser here; open the address yourself")

    threading.Thread(target=try_it, name="outlast-ui-open", daemon=True).start()


def _trace(error: BaseException) -> None:
    traceback.print_exception(error)


# -- tokens ----------------------------------------------------------------------------------------------------------


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token_file is not None:
        if not arguments.token_file.strip():
            raise UsageError("--token-file is empty", hint="name the file, or leave the option out")
        return read_token(Path(arguments.token_file).expanduser())
    return guard.made_token() if arguments.with_token else ""


def _needed(host: str, url: str) -> str:
    """A token, unless only our user can reach this address."""
    if url or guard.needs_token(host):
        return guard.made_token()
    if not peers.can_name_users():
        messages.tell("this machine does not tell which user connects, so the page asks for a token")
        return guard.made_token()
    return ""


def read_token(path: Path) -> str:
    """The token in a file that is its owner's alone. Raises UsageError."""
    make = f"`(umask 077; openssl rand -hex 16 > {path})` makes one"
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            text = file.read(4096).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token file {path}: {error}", hint=make) from error
    if about.st_uid not in (os.getuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
        raise UsageError(f"other users can read the token file {path}", hint=f"`chmod 600 {path}`")
    if len(text) < guard.TOKEN_CHARS_MIN or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"the token in {path} must have at least {guard.TOKEN_CHARS_MIN} letters or digits, on one line",
            hint=make,
        )
    return text
