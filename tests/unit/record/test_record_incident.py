"""Whatever a person hands over can be read, or the reason is told."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import InputError
from k3lib.record.incident import Incident, Note, Trouble, open_incident
from k3lib.record.unpack import DamagedInput, to_utf8, unpack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LOG = "".join(f"(Worker_TP{i % 8} pid={i}) ERROR step {i * 7919}\n" for i in range(12_000)).encode()
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "zstd": zstd.compress, "xz": lzma.compress, "bzip2": bz2.compress,
}  # fmt: skip


def _texts(incident: Incident) -> dict[str, bytes]:
    return {file.name: b"".join(file.chunks()) for file in incident.files}


def _text(path: Path) -> bytes:
    return _texts(open_incident(str(path)))[str(path)]


@pytest.mark.parametrize("packer", _PACKERS)
def test_a_compressed_log_reads_as_the_log(tmp_path: Path, packer: str) -> None:
    """The content tells the format, whatever the name; several members follow one another."""
    path = tmp_path / "engine.log"
    path.write_bytes(_PACKERS[packer](_LOG) + _PACKERS[packer](b"the end\n"))
    assert _LOG + b"the end\n" == _text(path)


@pytest.mark.parametrize("packer", _PACKERS)
def test_a_truncated_archive_gives_what_came_out_and_says_so(tmp_path: Path, packer: str) -> None:
    """Half of a compressed log is a beginning of the log, with a note."""
    path = tmp_path / "engine.log.x"
    packed = _PACKERS[packer](_LOG * 3)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    incident = open_incident(str(path))
    text = _texts(incident)[str(path)]
    assert (_LOG * 3).startswith(text)
    assert len(text) > 50_000
    assert [Trouble.DAMAGED] == [note.trouble for note in incident.notes]


def test_a_gzip_with_a_wrong_checksum_gives_all_its_text(tmp_path: Path) -> None:
    """Also of a small file, whose only fault is at its very end, nothing is lost."""
    path = tmp_path / "small.gz"
    packed = bytearray(gzip.compress(b"one\ntwo\n"))
    packed[-6] ^= 0xFF
    path.write_bytes(packed)
    incident = open_incident(str(path))
    assert {str(path): b"one\ntwo\n"} == _texts(incident)
    assert [Trouble.DAMAGED] == [note.trouble for note in incident.notes]


@pytest.mark.parametrize("packer", ["gzip", "zstd"])
def test_a_small_archive_that_expands_hugely_comes_in_small_blocks(packer: str) -> None:
    """64 MB of zeros never stand in memory at once."""
    packed = _PACKERS[packer](b"\0" * (16 << 20)) * 4
    sizes = [len(block) for block in unpack([packed])]
    assert 64 << 20 == sum(sizes)
    assert max(sizes) <= 1 << 20


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\0"]))
def test_any_bytes_are_text_or_damaged(content: bytes, magic: bytes) -> None:
    """No content raises anything but the one exception that says so."""
    try:
        text = b"".join(to_utf8(unpack([magic + content])))
    except DamagedInput:
        return
    assert b"\0" not in text


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE), ("utf-16-le", b""), ("utf-16-be", b""), ("utf-8", b""),
    ],
)  # fmt: skip
def test_every_encoding_reads_as_utf_8(tmp_path: Path, encoding: str, mark: bytes) -> None:
    """With or without a byte order mark."""
    text = "ERROR: mémoire épuisée …\n" * 30_000 if not mark else "ERROR: mémoire …\n"
    path = tmp_path / "paste.txt"
    path.write_bytes(mark + text.encode(encoding))
    assert text.encode() == _text(path)


def test_latin_1_and_nul_bytes_lose_no_line(tmp_path: Path) -> None:
    """A hole that log rotation left disappears, an eight-bit letter stays for the reader to replace."""
    path = tmp_path / "engine.log"
    path.write_bytes(b"\0" * 5000 + "mémoire\nfin\n".encode("latin-1"))
    assert "mémoire\nfin\n".encode("latin-1") == _text(path)


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    """Nothing in it is an answer, not an error."""
    path = tmp_path / "engine.log"
    path.touch()
    assert b"" == _text(path)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """`k3 triage <(kubectl logs …)` hands over a pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(_LOG,))
    writer.start()
    assert _LOG == _text(path)
    writer.join()


def test_standard_input_is_read(tmp_path: Path) -> None:
    """`-` is standard input, compressed or not, and stays open for the process."""
    path = tmp_path / "engine.log.gz"
    path.write_bytes(gzip.compress(_LOG))
    kept = os.dup(0)
    try:
        with path.open("rb") as given_in:
            os.dup2(given_in.fileno(), 0)
            assert {"-": _LOG} == _texts(open_incident("-"))
            assert os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_folder_is_one_incident_and_nothing_leads_out_of_it(tmp_path: Path) -> None:
    """Text files at any depth, named from the folder; links, pipes and what is no text are left out with reasons."""
    folder = tmp_path / "incident"
    (folder / "node-1").mkdir(parents=True)
    (folder / "node-1" / "dmesg.txt").write_bytes(b"NVRM: Xid\n")
    (folder / "engine.log").write_bytes(_LOG)
    (folder / "engine.log.1.gz").write_bytes(gzip.compress(b"before\n"))
    (folder / "model.safetensors").write_bytes(
        b"\x20\0\0\0\0\0\0\0" + b'{"weight":{"dtype":"BF16"}}' * 400 + random.Random(7).randbytes(60_000)
    )
    (tmp_path / "secret").write_bytes(b"not part of it\n")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    incident = open_incident(str(folder))
    assert {"engine.log": _LOG, "engine.log.1.gz": b"before\n", "node-1/dmesg.txt": b"NVRM: Xid\n"} == _texts(incident)
    assert [
        Note("link", Trouble.LINK),
        Note("linked", Trouble.LINK),
        Note("model.safetensors", Trouble.NO_TEXT),
        Note("pipe", Trouble.NOT_A_FILE),
    ] == incident.notes


def test_a_file_that_vanishes_is_a_note(tmp_path: Path) -> None:
    """A log that is rotated away between looking and reading does not end the reading of the others."""
    (tmp_path / "a.log").write_bytes(b"a\n")
    (tmp_path / "b.log").write_bytes(b"b\n")
    incident = open_incident(str(tmp_path))
    (tmp_path / "a.log").unlink()
    assert {"a.log": b"", "b.log": b"b\n"} == _texts(incident)
    assert [("a.log", Trouble.UNREADABLE)] == [(note.file, note.trouble) for note in incident.notes]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_an_error_alone_and_a_note_in_a_folder(tmp_path: Path) -> None:
    """What cannot be read is told by name."""
    (tmp_path / "a.log").write_bytes(b"a\n")
    (tmp_path / "b.log").write_bytes(b"b\n")
    (tmp_path / "a.log").chmod(0)
    with pytest.raises(InputError):
        open_incident(str(tmp_path / "a.log"))
    assert [Note("a.log", Trouble.UNREADABLE, "Permission denied")] == open_incident(str(tmp_path)).notes


@pytest.mark.parametrize("name", ["missing.log", "empty folder", "only links"])
def test_nothing_to_read_is_an_error_that_says_what_was_seen(tmp_path: Path, name: str) -> None:
    """Four lines, and the exit code of a bad parameter."""
    (tmp_path / "empty folder").mkdir()
    (tmp_path / "only links").mkdir()
    (tmp_path / "only links" / "a").symlink_to("/etc/passwd")
    with pytest.raises(InputError) as raised:
        open_incident(str(tmp_path / name))
    seen = {"missing.log": "No such file or directory", "empty folder": "the folder is empty", "only links": "a: link"}
    assert (2, seen[name], 4) == (raised.value.exit_code, raised.value.evidence, len(str(raised.value).splitlines()))
    assert name in raised.value.what
