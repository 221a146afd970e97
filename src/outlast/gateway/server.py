"""The gateway: a thread with its own event loop, listening on loopback, and the routes that lead to models' APIs."""

import asyncio
import hmac
import secrets
import socket
import threading
from collections.abc import Mapping

from outlast.errors import UsageError
from outlast.gateway import peers
from outlast.gateway.relay import Front
from outlast.gateway.requests import RequestSummary
from outlast.gateway.timing import Timing
from outlast.gateway.upstream import Upstream, upstream
from outlast.gateway.values import Call, CallUsage, Kind, Meter, Refusal, Settings

HELD_BYTES_MAX = 64 * 1024 * 1024  # of requests that wait to be whole, of all connections together
ROUTES_MAX = 64
ASIDES_MIN = 2  # so many calls without tools may come before an agent's first one with some
CLOSING_ROUNDS = 10
FAULTS_MAX = 100
_BACKLOG = 256
_LEDGER_FAILED = (
    "outlast: the budget cannot be kept, because its ledger failed; nothing more is sent to the model"
)


class Gateway:
    """A loopback proxy between an agent and its model, which counts each call and can refuse the next one.

    `environment` is the user's: its proxies and certificates are used on the way to the model. Nothing is forwarded
    without the run's secret, which is part of every address that `route` gives. It fails closed: without this thread,
    an agent's call is a network error. Keys pass through; they are kept, logged and shown nowhere.
    """

    def __init__(self, meter: Meter, environment: Mapping[str, str] | None = None) -> None:
        self._hub = _Hub(meter)
        self._settings = Settings(dict(environment or {}))
        self._routes: dict[str, str] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen on loopback. Connections are taken when it returns."""
        assert self._thread is None, "a gateway is started once"
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="outlast-gateway", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def alive(self) -> bool:
        """Whether calls are served."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def faults(self) -> tuple[str, ...]:
        """Internal faults by kind; empty unless we have a bug, or the meter has."""
        return tuple(self._hub.faults)

    def route(self, upstream_base_url: str) -> str:
        """The address to give to an agent in place of its API's. Raises UsageError for one that cannot be forwarded to."""
        assert self._socket is not None, "a gateway is started before it has addresses"
        with self._lock:
            known = self._routes.get(upstream_base_url)
            if known is None:
                if len(self._routes) >= ROUTES_MAX:
                    raise UsageError(f"a run has at most {ROUTES_MAX} model APIs")
                where, path = upstream(upstream_base_url, self._settings)
                number = self._hub.add(where)
                known = f"{self._address}/{self._hub.secret}/{number}{path.rstrip('/')}"
                self._routes[upstream_base_url] = known
            return known

    def variables(self) -> dict[str, str]:
        """Further variables for the agent's environment: past a proxy, it must reach us directly."""
        if not self._settings.first("http_proxy", "all_proxy"):
            return {}
        spared = ",".join(filter(None, (self._settings.first("no_proxy"), "127.0.0.1")))
        return {"NO_PROXY": spared, "no_proxy": spared}

    def close(self) -> None:
        """Serve nobody any more. Calls under way are cut, and counted before this returns."""
        loop, stopping, thread = self._loop, self._stopping, self._thread
        if loop is not None and stopping is not None and thread is not None and thread.is_alive():
            try:
                loop.call_soon_threadsafe(stopping.set)
            except RuntimeError:
                pass  # it has just ended by itself
            thread.join(Timing.current().close_s)
        if self._socket is not None:
            self._socket.close()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._hub.fault(f"the gateway ended: {type(error).__name__}")
        finally:
            self._ready.set()
            if self._socket is not None:
                self._socket.close()  # whoever calls now gets a network error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._unexpected)
        self._stopping = asyncio.Event()
        assert self._socket is not None, "bound before the thread began"
        server = await self._loop.create_server(lambda: Front(self._hub), sock=self._socket, backlog=_BACKLOG)
        self._ready.set()
        try:
            while not self._stopping.is_set():
                await self._sweep(self._stopping)
        finally:
            # First nobody new, then the server: asyncio forgets a socket that it took while it was being closed.
            self._loop.remove_reader(self._socket.fileno())
            for _ in range(CLOSING_ROUNDS):  # the connections' begins and ends are callbacks of the loop
                for front in tuple(self._hub.fronts):
                    front.cut("gateway", abort=True)
                await asyncio.sleep(0)
            server.close()

    async def _sweep(self, stopping: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(Timing.current().sweep_s):
                await stopping.wait()
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            for front in tuple(self._hub.fronts):
                if front.late(now):
                    front.cut("client", abort=True)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Only the kinds of errors are kept: a message could quote what passed through."""
        error = context.get("exception")
        self._hub.fault(f"{context.get('message')}: {type(error).__name__}")


class _Hub:
    """The common state of all connections. All but `add` is called in the gateway's thread."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.secret = secrets.token_hex(16)
        self._ways: dict[bytes, Upstream] = {}
        self._untold: list[str] = []
        self._tools_seen = False
        self._asides = 0
        self._broken = False
        self._judged_s = float("-inf")
        self.fronts: set[Front] = set()
        self.held_bytes = 0
        self.held_bytes_max = HELD_BYTES_MAX
        self.faults: list[str] = []

    def add(self, where: Upstream) -> int:
        number = len(self._ways) + 1
        self._ways[str(number).encode()] = where
        return number

    def send_foreign_away(self) -> None:
        """Cut the connections of other users that have not shown the secret. Looks at most once in a while: looking costs."""
        now = asyncio.get_running_loop().time()
        if now - self._judged_s < Timing.current().judge_s:
            return
        self._judged_s, foreign = now, peers.foreign()
        for front in tuple(self.fronts):
            ends = None if front.known else front.ends
            if ends is not None and (peers.written(ends[0]), peers.written(ends[1])) in foreign:
                front.leave()

    def fault(self, what: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(what)

    def lead(self, target: bytes) -> tuple[Upstream, bytes] | None:
        """The upstream of a target, and its path there; None without the secret."""
        path, mark, query = target.partition(b"?")
        root, given, number, rest = (*path.split(b"/", 3), b"", b"", b"")[:4]
        if root or not hmac.compare_digest(given, self.secret.encode()) or number not in self._ways:
            return None
        return self._ways[number], b"/" + rest + mark + query

    def refusal(self) -> Refusal | None:
        """Why nothing at all is to be asked any more: who is not seen to call may still do so."""
        try:
            return Refusal(_LEDGER_FAILED) if self._broken else self._meter.closed()
        except Exception as error:
            self.fault(f"closed: {type(error).__name__}")
            return Refusal(_LEDGER_FAILED)

    def admit(self, kind: Kind, where: Upstream, summary: RequestSummary, size: int) -> Call | Refusal:
        key = f"outlast-{secrets.token_hex(12)}"
        call = Call(key, kind, where.host, summary.model, size, summary.output_max, summary.tools)
        if self._broken:
            return Refusal(_LEDGER_FAILED)
        try:
            return self._meter.before(call) or call
        except Exception as error:
            self.fault(f"before: {type(error).__name__}")
            return Refusal(_LEDGER_FAILED)

    def words_for(self, call: Call) -> str:
        """The message to send with this call. An agent that offers tools gets it only with such a call, not in its side calls."""
        self._tools_seen = self._tools_seen or call.tools
        self._asides += not call.tools
        if not call.tools and (self._tools_seen or self._asides <= ASIDES_MIN):
            return ""
        try:
            self._untold.append(self._meter.words())
        except Exception as error:
            self.fault(f"words: {type(error).__name__}")
        words = "\n\n".join(filter(None, self._untold))
        self._untold = []
        return words

    def untold(self, words: str) -> None:
        """They did not reach the model: the next call carries them."""
        self._untold.append(words)

    def count(self, spent: CallUsage) -> None:
        try:
            self._meter.after(spent)
        except Exception as error:
            self._broken = True
            self.fault(f"after: {type(error).__name__}")
