"""A fact is collected alike here and behind any command; a place that cannot be looked at says why."""

from __future__ import annotations

import sys

import pytest

from k3lib.errors import K3Error
from k3lib.probe.collection import ProbeError, Wanted, collect, read_collector
from k3lib.probe.shells import CommandShell, LocalShell


def test_here_and_behind_a_command() -> None:
    """The same machine, looked at here and through a prefix, has the same name, kernel and memory."""
    here = collect(LocalShell(sys.executable))
    there = collect(CommandShell(("env", "K3_NOTHING=1"), python=sys.executable))
    for name in ("name", "kernel", "uid"):
        assert here.sources["machine"].data[name] == there.sources["machine"].data[name]
    assert here.sources["/proc/meminfo"].ok


def test_words_are_quoted_for_a_place_that_joins_them() -> None:
    """ssh joins words for a shell of its own: a word with spaces and quotes arrives whole."""
    shell = CommandShell(("sh", "-c"), quote=True)
    assert b"a b'c\n" == shell.run(["printf", "%s\n", "a b'c"]).out


def test_input_reaches_the_command() -> None:
    """What is given as input is what the command reads."""
    assert b"hello" == LocalShell(sys.executable).run(["cat"], b"hello").out


@pytest.mark.parametrize(
    ("said", "prefix", "python"),
    [
        ("No such file or directory", ("no-such-docker", "exec"), "python3"),
        ("ended with 3: gone", ("sh", "-c", "echo gone >&2; exit 3"), "python3"),
        ("it printed something else", ("echo",), "hello"),
    ],
)
def test_a_place_that_cannot_be_looked_at(said: str, prefix: tuple[str, ...], python: str) -> None:
    """The error has four lines, with what the place said."""
    with pytest.raises(ProbeError) as caught:
        collect(CommandShell(prefix, python=python))
    assert said in caught.value.evidence
    assert 4 == len(str(caught.value).splitlines())


def test_a_place_that_does_not_answer() -> None:
    """A place that hangs is given up at the limit."""
    with pytest.raises(K3Error) as caught:
        collect(CommandShell(("sh", "-c", "sleep 600")), limit_s=0.3)
    assert "no answer within 0.3 s" == caught.value.evidence


def test_wanted_becomes_words() -> None:
    """What is wanted becomes the collector's own options, and it takes them."""
    wanted = Wanted(pythons=["/a/python"], pids=[7], containers=["k3"], files=["/x"], disks=["/data"])
    words = wanted.words()
    assert ["--python", "/a/python", "--pid", "7", "--container", "k3", "--file", "/x", "--disk", "/data"] == words
    assert all(f'"{word}"' in read_collector() for word in words[::2])
