"""Keeps tests off the network: a model call can reach a loopback server and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any


class NetworkBlockedError(RuntimeError):
    """A test tried to leave this machine."""


def _is_local(family: int, address: Any) -> bool:
    if family == getattr(socket, "AF_UNIX", None):
        return True
    host = address[0] if isinstance(address, tuple) and address else ""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host == "localhost":
        return True
    try:
        return ip_address(str(host).split("%", 1)[0]).is_loopback
    except ValueError:
        return False


@contextmanager
def block_network() -> Iterator[None]:
    """Refuse every connection to an address that is not loopback, and every lookup of a foreign name.

    Blocking and asyncio sockets alike; a datagram counts too. Use it around the whole session in `conftest.py`.
    """
    real: dict[str, Any] = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex", "sendto")}
    overridden = {name: name in vars(socket.socket) for name in real}
    real_lookup = socket.getaddrinfo

    def guard(name: str) -> Any:
        def checked(self: socket.socket, *args: Any) -> Any:
            if args and not _is_local(self.family, args[-1] if name == "sendto" else args[0]):
                raise NetworkBlockedError("tests may only reach loopback addresses")
            return real[name](self, *args)

        return checked

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in (None, "", b"") and not _is_local(socket.AF_INET, (host,)) and host != socket.gethostname():
            raise NetworkBlockedError("tests may only look up loopback names")
        return real_lookup(host, *args, **kwargs)

    try:
        for name in real:
            setattr(socket.socket, name, guard(name))
        socket.getaddrinfo = lookup
        yield
    finally:
        # socket.socket inherits these from its C base class; deleting an override uncovers the original.
        for name, method in real.items():
            if overridden[name]:
                setattr(socket.socket, name, method)
            else:
                delattr(socket.socket, name)
        socket.getaddrinfo = real_lookup
