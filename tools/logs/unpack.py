"""Compressed logs: what the standard library unpacks, and what is known but not read. Told by content, not by name."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterable
from typing import Protocol

_LZMA_BYTES = 128 * 1024 * 1024
"""Memory that one .xz file may ask for; `xz -9` needs half of it."""
_MAGIC_BYTES = 10
_GZIP = re.compile(rb"\x1f\x8b")
_BZIP = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_XZ = re.compile(rb"\xfd7zXZ\0")
_UNREAD = re.compile(
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"  # zstd
    rb"|\x04\x22\x4d\x18|\x02\x21\x4c\x18"  # lz4
    rb"|PK\x03\x04|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x1f[\x9d\xa0]|LZIP|\xff\x06\0\0sNaPpY|\x89LZO\0"
    rb"|LPKSHHRH"  # the systemd journal's own files
    rb"|(?s:.{257})ustar"
)


class Unpacker(Protocol):
    """One member of a compressed file, unpacked piece by piece."""

    def feed(self, data: bytes, room: int) -> bytes:
        """Unpack at most `room` bytes; what is not used yet is kept. Raises ValueError on damage."""

    @property
    def hungry(self) -> bool:
        """True when nothing more comes out without more data."""

    @property
    def ended(self) -> bool:
        """True behind the member's end."""

    @property
    def rest(self) -> bytes:
        """What follows the member's end."""


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def feed(self, data: bytes, room: int) -> bytes:
        try:
            return self._inner.decompress(self._inner.unconsumed_tail + data, room)
        except zlib.error as error:
            raise ValueError from error

    @property
    def hungry(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def rest(self) -> bytes:
        return self._inner.unused_data


class _Other:
    def __init__(self, inner: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._inner = inner

    def feed(self, data: bytes, room: int) -> bytes:
        try:
            return self._inner.decompress(data, room)
        except (lzma.LZMAError, OSError, EOFError, MemoryError) as error:
            raise ValueError from error

    @property
    def hungry(self) -> bool:
        return self._inner.needs_input

    @property
    def ended(self) -> bool:
        return self._inner.eof

    @property
    def rest(self) -> bytes:
        return self._inner.unused_data


def unpacker(head: bytes) -> Unpacker | None:
    """Return what unpacks a file (or member) that begins with `head`; None when it is not compressed in a way known."""
    if _GZIP.match(head):
        return _Gzip()
    if _BZIP.match(head):
        return _Other(bz2.BZ2Decompressor())
    if _XZ.match(head):
        return _Other(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_BYTES))
    return None


def is_unread_archive(head: bytes) -> bool:
    """Say whether a file that begins so may hold log lines that are not read: other compressions, archives, journals."""
    return _UNREAD.match(head) is not None


def unpack(chunks: Iterable[bytes], limit: int) -> tuple[bytes, bool]:
    """Unpack every member, at most `limit` bytes; the flag tells that not all came out.

    A damaged or unfinished end (a file still being written) keeps what came before it.
    """
    out = bytearray()
    member: Unpacker | None = None
    data = b""
    for chunk in chunks:
        data += chunk
        while data or (member is not None and not member.hungry):
            if member is None:
                member = unpacker(data)
                if member is None:
                    break
            try:
                out += member.feed(data, limit + 1 - len(out))
            except ValueError:
                return bytes(out), True
            if len(out) > limit:
                return bytes(out), True
            data = b""
            if member.ended:
                data, member = member.rest, None
        if len(data) >= _MAGIC_BYTES:
            break
    return bytes(out), member is not None or bool(data.strip(b"\0"))  # zero bytes behind the last member are padding
