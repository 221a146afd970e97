"""Which user is at the other end of a connection inside this machine, as the kernel itself says."""

import errno
import ipaddress
import os
import socket
import struct
import sys
import threading
from pathlib import Path

from outlast.web.timing import Timing

UNKNOWN = -1  # it was of this machine, and is closed already: nobody's
_ESTABLISHED = 1
_TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_HEAD = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_ENDS = struct.Struct(">HH16s16s")
_NO_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND = struct.Struct("=BBBB48xIIIII")
_ANSWERS = threading.Event()  # whether the kernel was found to answer at all
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

End = tuple[str, int]


class NoRoom(OSError):
    """It cannot be asked now: this process has as many files open as it may."""


def is_ours(peer: End, here: End) -> bool:
    """Whether the other end is of our user or root's. What cannot be found is not."""
    return uid_of(peer, here) in (0, os.getuid())


def uid_of(peer: End, here: End) -> int | None:
    """The user id of the other end; None where it is not on this machine. Raises NoRoom.

    An end that is closed already has no user, and the kernel says 0 for it: root's counts only while it is open.
    """
    found = user_of(peer, here)
    if found is None:
        return None
    uid, is_open = found
    return uid if uid != 0 or is_open else UNKNOWN


def user_of(peer: End, here: End) -> tuple[int, bool] | None:
    """The user id of the other end as the kernel has it, and whether it is still open.

    The kernel is asked for this one connection (`sock_diag(7)`), however many others there are. Where it does not answer that, its
    table of all connections is read.
    """
    ends = _plain(peer), _plain(here)
    try:
        found = _from_kernel(*ends)
    except (OSError, struct.error):
        return _looked_up(*ends)
    if found is not None:
        _ANSWERS.set()
    elif not _ANSWERS.is_set():  # one that cannot tell says that it is not there, too
        return _looked_up(*ends)
    return found


def _plain(end: End) -> End:
    """An address of IPv4 that is written as one of IPv6 is still one of IPv4 to who connects."""
    address = ipaddress.ip_address(end[0].partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), end[1]


def _from_kernel(peer: End, here: End) -> tuple[int, bool] | None:
    """Ask the kernel about this one connection. Raises OSError if it does not answer."""
    address = ipaddress.ip_address(peer[0])
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    ends = _ENDS.pack(peer[1], here[1], _padded(peer[0]), _padded(here[0]))
    body = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + _NO_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(Timing.current().kernel_reply_s)
        kernel.sendto(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body, (0, 0))
        reply = kernel.recv(4096)
    _, kind, _, _, _ = _HEAD.unpack_from(reply)
    if kind == _ERROR:
        code = -struct.unpack_from("=i", reply, _HEAD.size)[0]
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    _, state, _, _, _, _, _, uid, _ = _FOUND.unpack_from(reply, _HEAD.size)
    mapped = _ENDS.pack(peer[1], here[1], _mapped(peer[0]), _mapped(here[0]))
    if reply[_HEAD.size + 4 : _HEAD.size + 4 + _ENDS.size] not in (ends, mapped):
        return None  # it answered for whoever listens there
    return uid, state == _ESTABLISHED


def _padded(address: str) -> bytes:
    return ipaddress.ip_address(address).packed.ljust(16, b"\0")


def _mapped(address: str) -> bytes:
    """An address as a socket of IPv6 has it that is connected by IPv4."""
    found = ipaddress.ip_address(address)
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


def _looked_up(peer: End, here: End) -> tuple[int, bool] | None:
    """Look the connection up in the table of all connections."""
    row = _row(peer, here)
    try:
        return (int(row[7]), int(row[3], 16) == _ESTABLISHED) if row else None
    except (ValueError, IndexError):
        return None


def holders(peer: End, here: End) -> list[int] | None:
    """The processes of our user that hold the other end of a connection inside this machine; None where it is closed already,
    or nobody can look now.

    Empty where none is found: the connection comes from elsewhere, or its process lets nobody look.
    """
    try:
        row = _row(_plain(peer), _plain(here))
        if row is None:  # one that was reset has left the table, however much it had sent
            return None if _is_of_this_machine(peer, here) else []
        inode = row[9]
        if inode == "0":
            return None
        folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        found = [int(folder.name) for folder in folders if _holds(folder / "fd", f"socket:[{inode}]")]
        if not found:  # it may have been closed while we looked
            row = _row(_plain(peer), _plain(here))
            return [] if row is not None and row[9] == inode else None
        return found
    except OSError:
        return None


def _is_of_this_machine(peer: End, here: End) -> bool:
    """Whether the address of the other end is one of ours: such a one can be listened on."""
    there, ours = _plain(peer)[0], _plain(here)[0]
    address = ipaddress.ip_address(there)
    if address.is_loopback or there == ours:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as tried:
        try:
            tried.bind((there, 0))
        except OSError:
            return False
    return True


def _holds(folder: Path, wanted: str) -> bool:
    """Whether a process has this socket open. Raises OSError where we have no room to look."""
    try:
        if folder.stat().st_uid not in (os.getuid(), 0):
            return False
        return any(_leads(each) == wanted for each in folder.iterdir())
    except OSError as error:
        if error.errno in _FULL:
            raise
        return False


def _leads(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""  # closed between our two looks


def _row(peer: End, here: End) -> list[str] | None:
    """The row of the table of all connections for this one. Raises NoRoom.

    A connection by IPv4 of a program that speaks IPv6, too, is in the table of that.
    """
    version = ipaddress.ip_address(peer[0]).version
    spellings = [(version, [_spelled(peer), _spelled(here)])]
    if version == 4:
        spellings.append((6, [_spelled((f"::ffff:{end[0]}", end[1])) for end in (peer, here)]))
    for kind, wanted in spellings:
        try:
            with _TABLES[kind].open() as table:
                for row in table:
                    words = row.split(maxsplit=11)
                    if words[1:3] == wanted:
                        return words
        except OSError as error:
            if error.errno in _FULL:
                raise NoRoom(error.errno, error.strerror) from error
    return None


def can_name_users() -> bool:
    """Whether this machine shows whose a connection is: tried with a connection of our own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address, timeout=Timing.current().own_connect_s) as client:
            taken, _ = listening.accept()
            with taken:
                return is_ours(client.getsockname()[:2], address[:2])


def _spelled(end: End) -> str:
    """The end as the table writes it: words of four bytes, each in this machine's byte order."""
    raw = ipaddress.ip_address(end[0]).packed
    words = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
