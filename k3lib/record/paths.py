"""One object owns every path of a session, so that all of it re-opens from its folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrialPaths:
    """The files of one trial. `raw` is 0700, never rendered and never bundled."""

    folder: Path

    @property
    def raw(self) -> Path:
        """Evidence as it came, unredacted."""
        return self.folder / "raw"

    @property
    def raw_log(self) -> Path:
        """The engine's log as it came."""
        return self.raw / "engine.log"

    @property
    def log(self) -> Path:
        """The same log, line for line, redacted."""
        return self.folder / "engine.log"

    @property
    def launch(self) -> Path:
        """How the engine was started and ended."""
        return self.folder / "launch.json"

    @property
    def endpoint(self) -> Path:
        """What the running engine said of itself."""
        return self.folder / "endpoint.json"

    @property
    def requests(self) -> Path:
        """A line per request."""
        return self.folder / "requests.jsonl"

    @property
    def probes(self) -> Path:
        """A line per functional probe."""
        return self.folder / "probes.jsonl"

    @property
    def samples(self) -> Path:
        """A line per scrape."""
        return self.folder / "samples.jsonl"


@dataclass(frozen=True)
class SessionPaths:
    """The files of one session."""

    folder: Path

    @property
    def name(self) -> str:
        """The session's name: its folder's."""
        return self.folder.name

    @property
    def spec(self) -> Path:
        """What was intended."""
        return self.folder / "spec.json"

    @property
    def state(self) -> Path:
        """Who runs it and how it ended."""
        return self.folder / "state.json"

    @property
    def fingerprint(self) -> Path:
        """Where it ran."""
        return self.folder / "fingerprint.json"

    @property
    def fingerprint_end(self) -> Path:
        """Where it ran, looked at again when it was closed."""
        return self.folder / "fingerprint-end.json"

    @property
    def baseline(self) -> Path:
        """The fingerprint of the last stable session when this one began, and what was set for debugging before."""
        return self.folder / "baseline.json"

    @property
    def raw(self) -> Path:
        """Evidence of the session itself as it came, unredacted; 0700, never rendered, never bundled."""
        return self.folder / "raw"

    @property
    def scene(self) -> Path:
        """The same evidence, redacted: snapshots, command, log, changes."""
        return self.folder / "scene"

    @property
    def compatibility(self) -> Path:
        """What stage 20 judges: what is intended and what was seen of the machines."""
        return self.folder / "compatibility.json"

    @property
    def events(self) -> Path:
        """What happened when, a line each; the live view follows it."""
        return self.folder / "events.jsonl"

    @property
    def record(self) -> Path:
        """Everything that was found."""
        return self.folder / "record.json"

    @property
    def notebook(self) -> Path:
        """The executed notebook."""
        return self.folder / "notebook.ipynb"

    @property
    def html(self) -> Path:
        """The notebook as one self-contained page."""
        return self.folder / "notebook.html"

    @property
    def manifest(self) -> Path:
        """A checksum per file, raw evidence apart."""
        return self.folder / "MANIFEST.sha256"

    def trial(self, number: int) -> TrialPaths:
        """The files of trial 1, 2, …"""
        return TrialPaths(self.folder / f"trial-{number}")

    def trials(self) -> list[tuple[int, TrialPaths]]:
        """The trials that left anything, in order."""
        found = []
        for folder in self.folder.glob("trial-*"):
            number = folder.name.removeprefix("trial-")
            if number.isdigit():
                found.append((int(number), TrialPaths(folder)))
        return sorted(found, key=lambda pair: pair[0])
