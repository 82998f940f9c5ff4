"""
The process between us and an engine: whatever ends us, it ends the engine and everything the engine started.

A program of its own, standard library only, run as `python -I -S keeper.py ...` so that it starts in about
20 ms and depends on nothing that we could break. Why a process and not a signal handler: a kill -9, a kernel
restart and an out-of-memory kill run no handler, and vLLM's EngineCore and workers outlive their API server
as orphans (seen with vLLM 0.32.0, 18 s and more after a SIGKILL of the server).

- It is a *child subreaper*: an orphan of the engine becomes its child, whatever session it moved to.
- It watches a pipe from us. End of file, or another parent, means that we are gone; a line means stop.
- Its own sudden death takes the engine's first process with it (PDEATHSIG); `leftovers.py` finds the rest.
- It reports on a second pipe, a JSON object per line: `started`, `failed`, `exited`, `ended`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

USAGE = "keeper.py CONTROL STATUS LOG PARENT GRACE_S SCRATCH PROGRAM [WORD...]"

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

TICK_S = 0.05
WATCH_S = 0.25
ABANDONED_GRACE_S = 4.0
HARD_STOP_S = 4.0
TRACKER_GRACE_S = 1.0


class Keeper:
    """
    One engine and its descendants.

    Args:
        control: Descriptor that we write to; its end of file means that we are gone.
        status: Descriptor of the reports.
        parent: Our process id.
        grace_s: From the first SIGTERM to SIGKILL.
    """

    def __init__(self, control: int, status: int, parent: int, grace_s: float) -> None:
        self.control, self.status, self.parent, self.grace_s = control, status, parent, grace_s
        self.engine: int | None = None
        self.asked = False
        self.abandoned = False
        self.wakeup, wakeup_in = os.pipe()
        for descriptor in (self.wakeup, wakeup_in):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)

    def run(self, argv: list[str], log: int) -> None:
        """Start the engine, wait for its end or for the word, leave nothing behind."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        started = time.monotonic()
        error = self.start(argv, log)
        os.close(log)
        if error is not None:
            self.report(event="failed", error=error)
            return
        self.report(event="started", pid=self.engine, at=started)
        while self.engine is not None and not (self.asked or self.abandoned):
            self.wait(WATCH_S)
            self.reap()
        killed, alive = self.end_tree()
        self.report(event="ended", killed=killed, alive=alive)

    def start(self, argv: list[str], log: int) -> str | None:
        """Fork and execute; the words of the error if that can't be done."""
        failed, failed_in = os.pipe()  # closed by a successful exec: Python's descriptors don't survive one
        keeper = os.getpid()
        self.engine = os.fork()
        if self.engine == 0:
            become_engine(argv, log, failed_in, keeper)
        os.close(failed_in)
        with os.fdopen(failed, "rb") as report:
            error = report.read().decode(errors="replace")
        if not error:
            return None
        os.waitpid(self.engine, 0)
        self.engine = None
        return error

    def wait(self, timeout_s: float) -> None:
        """Until a child ends, we say stop, we are gone, or the time is over."""
        watched = [self.wakeup] if self.asked or self.abandoned else [self.wakeup, self.control]
        ready, _, _ = select.select(watched, [], [], timeout_s)
        if self.wakeup in ready:
            os.read(self.wakeup, 4096)
        if self.control in ready:
            self.asked = bool(os.read(self.control, 64))
            self.abandoned = not self.asked
        if os.getppid() != self.parent:  # a forked child of ours may hold the pipe open after our death
            self.abandoned = True

    def reap(self) -> bool:
        """Collect every child that has ended; False once there is none left, alive or dead."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.engine:
                self.engine = None
                exit_code = os.waitstatus_to_exitcode(code)
                self.report(
                    event="exited",
                    at=time.monotonic(),
                    code=exit_code if exit_code >= 0 else None,
                    signal=signal_name(-exit_code) if exit_code < 0 else None,
                    asked=self.asked or self.abandoned,
                )

    def end_tree(self) -> tuple[list[str], list[str]]:
        """
        End every descendant: the first process politely, then the others, then all of them hard.

        An engine that is asked through its first process shuts its workers down itself; workers that get
        the signal at the same moment log failures that are none. So the others are asked once the first is
        gone, or half-way through the grace.

        Returns:
            Those that were gone only after SIGKILL, and those that even that did not end.
        """
        start = time.monotonic()
        grace = min(self.grace_s, ABANDONED_GRACE_S) if self.abandoned else self.grace_s
        asked: set[int] = set()
        killed: dict[int, str] = {}
        while self.reap():
            spent = time.monotonic() - start
            if self.abandoned:
                grace = min(grace, ABANDONED_GRACE_S)
            if spent >= grace + HARD_STOP_S:
                return list(killed.values()), [describe(pid) for pid in descendants(os.getpid())]
            if spent >= grace:
                self.kill_all(killed, spare_trackers=spent < grace + TRACKER_GRACE_S)
            elif self.engine is not None and spent < grace / 2:
                self.ask([self.engine], asked)
            else:
                self.ask(descendants(os.getpid()), asked)
            self.wait(TICK_S)
        return list(killed.values()), []

    def ask(self, pids: list[int], asked: set[int]) -> None:
        """SIGTERM, once to each."""
        for pid in pids:
            if pid not in asked:
                asked.add(pid)
                send(pid, signal.SIGTERM)

    def kill_all(self, killed: dict[int, str], *, spare_trackers: bool) -> None:
        """SIGKILL to every descendant, noted in `killed`."""
        for pid in descendants(os.getpid()):
            words = describe(pid)
            if not (spare_trackers and is_tracker(words)):
                killed.setdefault(pid, words)
                send(pid, signal.SIGKILL)

    def report(self, **event: object) -> None:
        """One line to us, if we are still there."""
        with contextlib.suppress(OSError):
            os.write(self.status, (json.dumps(event) + "\n").encode())


def become_engine(argv: list[str], log: int, failed: int, keeper: int) -> None:
    """The child's side of the fork: a session of its own, the log as output, then the engine's program."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execvp(argv[0], argv)
    except OSError as problem:
        os.write(failed, f"{problem.strerror}: {problem.filename or argv[0]}".encode())
    except BaseException as problem:
        os.write(failed, repr(problem).encode())
    os._exit(127)


def prctl(option: int, value: int) -> None:
    """The system call of that name; the standard library has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(root: int) -> list[int]:
    """Every process below this one that still runs; a dead one that waits for its parent is none."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            children.setdefault(int(parent), []).append(int(name))
            if state in (b"Z", b"X"):
                dead.add(int(name))
    found: list[int] = []
    below = list(children.get(root, []))
    while below:
        pid = below.pop()
        found.append(pid)
        below += children.get(pid, [])
    return sorted(pid for pid in found if pid not in dead)


def describe(pid: int) -> str:
    """`pid 4121: VLLM::EngineCore`, as a person would look for it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = " ".join(file.read(300).replace(b"\0", b" ").decode(errors="replace").split())
    except OSError:
        words = ""
    return f"pid {pid}: {words or 'no command line'}"


def is_tracker(words: str) -> bool:
    """
    True for the helper of Python's multiprocessing that removes shared memory once its users are gone.

    Killed together with them it leaves their segments in /dev/shm (seen with vLLM 0.32.0); alone it ends by itself.
    """
    return "multiprocessing.resource_tracker" in words


def send(pid: int, number: int) -> None:
    """A signal, if the process is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 64` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> None:
    """Read the words, keep the engine; an error of the keeper itself is reported, never printed."""
    if len(sys.argv) < 8:
        sys.exit(f"usage: {USAGE}")
    control, status, log, parent = (int(word) for word in sys.argv[1:5])
    grace_s, scratch, argv = float(sys.argv[5]), sys.argv[6], sys.argv[7:]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in (control, status, log):
        os.set_inheritable(descriptor, False)
    keeper = Keeper(control, status, parent, grace_s)
    try:
        keeper.run(argv, log)
    except BaseException as problem:
        keeper.report(event="broken", error=repr(problem))
        keeper.asked = True
        keeper.end_tree()
        sys.exit(1)
    finally:
        remove_scratch(scratch)


def remove_scratch(path: str) -> None:
    """Remove the engine's own temporary directory; an empty path is none."""
    if path:
        import shutil  # only now: it costs a third of our start

        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
