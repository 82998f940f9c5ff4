"""
Bytes of a log as they were written: decompressed by content, never by name, and always in UTF-8 order.

gzip, zstd, xz and bzip2 are told by their first bytes, UTF-16 and UTF-32 by their mark or by where
their NULs stand. Memory stays bounded whatever a few bytes expand to; what comes out before a
damaged place is used.
"""

from __future__ import annotations

import bz2
import codecs
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_BYTES = 1 << 20
_FED_BYTES = 4096  # what one damaged place can cost, compressed
_SNIFFED_BYTES = 4096
_BROKEN = (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, EOFError, ValueError)


class DamagedInput(Exception):
    """A compressed stream breaks off or is damaged; everything before the place has been handed out."""


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's object with the interface of the others; gives what lies before a damaged byte."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._rest = b""
        self._broken: zlib.error | None = None
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._broken:
            raise self._broken
        before, data = self._stream.copy(), self._rest + data
        try:
            out = self._stream.decompress(data, max_length)
        except zlib.error as problem:
            self._broken, self.needs_input = problem, False
            return _salvage(before, data)
        self._rest = self._stream.unconsumed_tail
        self.needs_input = not self._rest and len(out) < max_length
        return out


def _salvage(stream: zlib._Decompress, data: bytes) -> bytes:
    out = b""
    for i in range(len(data)):
        try:
            out += stream.decompress(data[i : i + 1])
        except zlib.error:
            break
    return out


_FORMATS: list[tuple[bytes, Callable[[], _Decoder]]] = [
    (b"\x1f\x8b", _Gzip),
    (b"\x28\xb5\x2f\xfd", zstd.ZstdDecompressor),
    (b"\xfd7zXZ\0", lzma.LZMADecompressor),
    (b"BZh", bz2.BZ2Decompressor),
]


def is_packed(start: bytes) -> bool:
    """Whether these first bytes of a file say that it is compressed."""
    return any(start.startswith(magic) for magic, _ in _FORMATS)


def unpack(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """
    The content of a stream, decompressed if its first bytes say that it is compressed.

    Args:
        blocks: The stream; the first block holds at least six bytes, if there are as many.

    Yields:
        Blocks of at most 1 MiB; plain input as it came.

    Raises:
        DamagedInput: After everything that could be read.

    >>> import gzip
    >>> b"".join(unpack([gzip.compress(b"one") + gzip.compress(b" two")]))
    b'one two'
    """
    source = iter(blocks)
    first = next(source, b"")
    make = next((make for magic, make in _FORMATS if first.startswith(magic)), None)
    if make is None:
        yield from chain([first], source)
        return
    try:
        yield from _decompress(chain([first], source), make)
    except _BROKEN as problem:
        raise DamagedInput(str(problem)) from problem


def _decompress(blocks: Iterable[bytes], make: Callable[[], _Decoder]) -> Iterator[bytes]:
    decoder: _Decoder | None = None
    for piece in _pieces(blocks):
        data = piece
        # One file can hold several members after another; what follows the last of them is padding.
        while data or (decoder and not decoder.needs_input and not decoder.eof):
            if decoder is None or decoder.eof:
                if decoder and not data.strip(b"\0"):
                    break
                decoder = make()
            out = decoder.decompress(data, BLOCK_BYTES)
            if out:
                yield out
            data = decoder.unused_data if decoder.eof else b""
    if decoder is None or not decoder.eof:
        raise EOFError("it ends in the middle")


def _pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _FED_BYTES):
            yield block[start : start + _FED_BYTES]


_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def to_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """
    Text of any encoding as UTF-8, without NUL bytes.

    Args:
        blocks: The stream; the first block decides.

    Yields:
        Blocks; bytes of an eight-bit encoding stay as they are and read as U+FFFD later.

    >>> b"".join(to_utf8(["\\ufeffé".encode("utf-16-le")])).decode()
    'é'
    """
    source = iter(blocks)
    first = next(source, b"")
    mark, encoding = _tell_encoding(first)
    source = chain([first[len(mark) :]], source)
    if encoding == "utf-8":
        # A hole that log rotation left is NULs; no line is lost with them.
        yield from (block.replace(b"\0", b"") if b"\0" in block else block for block in source)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in source:
        yield decoder.decode(block).replace("\0", "").encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _tell_encoding(first: bytes) -> tuple[bytes, str]:
    for mark, encoding in _MARKS:
        if first.startswith(mark):
            return mark, encoding
    start = first[:_SNIFFED_BYTES]
    even, odd = start[0::2].count(0), start[1::2].count(0)
    # English in UTF-16 has a NUL in every other byte, and none between.
    if max(even, odd) > len(start) / 4 and min(even, odd) < len(start) / 100:
        return b"", "utf-16-le" if odd > even else "utf-16-be"
    return b"", "utf-8"
