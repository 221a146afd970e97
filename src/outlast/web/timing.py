"""How long the page's server waits for clients, browsers and the store, and why."""

from dataclasses import dataclass

from outlast import settings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timing:
    """Durations of the page and the API. `current` is the standard one."""

    # A client.
    receive_s: float = 10.0  # for a whole request: slower ones keep a place that others need
    idle_s: float = 60.0  # between two requests, as browsers keep connections
    stall_s: float = 10.0  # a client that reads nothing for so long is cut off
    send_s: float = 120.0  # for a whole answer over a slow line
    linger_s: float = 1.0  # closing at once would take the answer away before it is read
    kernel_reply_s: float = 1.0  # for whose a connection is; without it the table of all connections is read
    own_connect_s: float = 5.0  # to a socket of ours on this machine
    no_room_ms: int = 50  # until descriptors are free again
    stop_s: float = 0.8  # for answers under way when the server is stopped: a person waits

    # Who may look.
    session_s: float = 30 * 86_400.0  # since it was last used
    code_s: float = 60.0  # from `outlast ui` to the browser that it opens
    wrong_window_s: float = 60.0  # in which wrong tokens are counted

    # The page.
    refresh_s: int = 15  # of a page without the script
    fresh_s: float = 1.0  # pages that an event wakes at once share an answer
    answer_wait_s: float = 30.0  # for the one who makes that answer
    store_retry_s: float = 1.0  # before a store that cannot be read is opened again
    rested_s: float = 1.0  # less between two attempts is no dead time in a chart

    # Events as they come.
    live_wait_s: float = 0.1  # eyes take that for at once
    heartbeat_s: float = 15.0  # below the half minute after which proxies end a silent stream
    live_stop_s: float = 2.0

    @classmethod
    def current(cls) -> "Timing":
        """The standard durations, with what OUTLAST_TIMING changes."""
        return settings.timing("web", cls)
