"""The program that an agent's hook runs: it passes the hook's input to the supervisor and prints the answer.

It imports nothing of ours. `sh hook.sh PYTHON SOCKET ATTEMPT AGENT [CLASSES] < input`"""

import _socket
import sys
from binascii import b2a_base64
from posix import _exit, environ, getuid, read, write  # `os` would cost a millisecond

LIMIT_S = 5.0
TAKEN = b"\x06"  # as in `connection`, which is not imported here
INPUT_MAX_BYTES = 20 << 20
DENIED = 2
_CHUNK = 1 << 20


def main(socket: str, attempt: str, agent: str, classes: str = "") -> int:
    """Ask the supervisor and print its answer; return the exit code that the agent understands.

    An agent's hooks fail open: a hook that crashes or is too late lets the call happen. So this one does not fail: when
    the supervisor does not confirm within `LIMIT_S` that a call is on record, a call that reaches outside is denied
    (exit 2). If this program dies, `hook.sh` above it denies the call. `classes` is the file in which the user named more
    calls that reach outside.
    """
    data = _input()
    try:
        there, code, out = _ask(socket, attempt, agent, data)
    except Exception as error:  # nothing may let a call pass unseen
        return _alone(data, classes, f"{type(error).__name__}: {error}")
    if code == DENIED:
        write(2, out)
    elif out:
        write(1, out)
    return _leave(there, code)


def _input() -> bytes:
    parts = []
    size = 0
    while chunk := read(0, _CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if size > INPUT_MAX_BYTES:
            break
    return b"".join(parts)


def _leave(there: _socket.socket, code: int) -> int:
    """End at once, after the acknowledgement that the answer was passed on. A hook that is killed before that has passed
    nothing on."""
    try:
        there.sendall(TAKEN)
    except OSError:  # the supervisor is gone
        pass
    _exit(code)


def _ask(socket: str, attempt: str, agent: str, data: bytes) -> tuple[_socket.socket, int, bytes]:
    """Ask the supervisor. Returns the connection, the exit code and the text to print. The answer is a frame: one byte for
    the code, then the text."""
    if len(data) > INPUT_MAX_BYTES:
        raise ValueError(f"a hook input of more than {INPUT_MAX_BYTES:,} bytes")
    body = b'{"type":"hook","acks":true,"attempt":"%s","agent":"%s","data":"%s"}' % (
        attempt.encode(), agent.encode(), b2a_base64(data, newline=False),
    )  # fmt: skip
    there = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        there.settimeout(LIMIT_S)
        there.connect(socket)
        refuse_stranger(there)
        there.sendall(len(body).to_bytes(4, "big") + body)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            chunk = there.recv(_CHUNK)
            if not chunk:
                raise ConnectionError("the supervisor is gone")
            answer += chunk
        if answer[4] not in (0, DENIED):
            raise ValueError("the supervisor refused")
    except BaseException:
        there.close()
        raise
    return there, answer[4], answer[5:]


def refuse_stranger(there: _socket.socket) -> None:
    """Raise if another user answers at the socket: their answer could allow everything."""
    uid = int.from_bytes(there.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
    mine = getuid()
    if uid in (mine, 0) or (mine == 0 and environ.get(b"SUDO_UID") == b"%d" % uid):
        return
    raise PermissionError(f"another user (uid {uid}) answers in the supervisor's place")


def _alone(data: bytes, classes: str, why: str) -> int:
    """Judge without the supervisor: let local calls pass, deny outward ones."""
    try:
        found = _outward(data, classes)
    except Exception as error:
        found = f"a call that cannot be understood ({type(error).__name__})"
    if not found:
        return 0
    write(
        2,
        f"outlast denied {found}: its supervisor did not put the call on record ({why}). This call was not made now; "
        "the same one may be on record as made before. Work on without it, or stop.\n".encode(
            errors="replace"
        ),
    )
    return DENIED


def _outward(data: bytes, classes: str) -> str:
    """The outward acts in a hook's input, in words; empty if there are none, or if no call is about to happen."""
    import json
    from os import path

    call = json.loads(data)
    name, event = call.get("tool_name"), str(call.get("hook_event_name", ""))
    if not name or event.startswith(("Post", "After")):
        return ""
    # only this file's folder is trusted, never the agent's working folder: -I keeps that off the path
    package = path.dirname(path.dirname(path.dirname(path.realpath(__file__))))
    sys.path.append(path.join(package, "agents", "outward"))
    from alone import load  # type: ignore[import-not-found]

    outward = load()
    known = outward.rules.load(outward.rules.tables(classes)) if classes else None
    found = outward.classify(str(name), call.get("tool_input"), str(call.get("cwd", "/")), known=known)
    return ", ".join(each.signature for each in found)
