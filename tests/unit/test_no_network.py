from __future__ import annotations

import asyncio
import socket

import pytest

from tests.no_network import NetworkBlockedError, block_network


def test_foreign_addresses_and_names_are_refused_and_loopback_is_not() -> None:
    original = socket.socket.connect
    with block_network(), block_network(), socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(server.getsockname(), timeout=5).close()
        with socket.socket() as client, pytest.raises(NetworkBlockedError):
            client.connect(("192.0.2.1", 80))
        with socket.socket(type=socket.SOCK_DGRAM) as client, pytest.raises(NetworkBlockedError):
            client.sendto(b"x", ("192.0.2.1", 53))
        with pytest.raises(NetworkBlockedError):
            socket.getaddrinfo("api.openai.com", 443)
    assert socket.socket.connect is original


async def test_asyncio_is_covered() -> None:
    with block_network():
        with pytest.raises(NetworkBlockedError):
            await asyncio.open_connection("192.0.2.1", 80)
        with pytest.raises(NetworkBlockedError):
            await asyncio.open_connection("api.openai.com", 443)
