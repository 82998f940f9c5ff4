"""
The kernel of a batch run, started as `python -P -m k3lib.notebook.kernel TETHER_FD -f CONNECTION_FILE`.

It is ipykernel, with two differences.

- It ends with its runner. The runner holds the other end of the pipe TETHER_FD; end of file means that the
  runner is gone, however it went. ipykernel's own watch (7.4.0 parentpoller.py) compares process ids once a
  second and never notices a runner that dies while the kernel still starts, where orphans go to a subreaper
  (systemd, a container's init) and not to process 1.
- It has no debugger: importing debugpy is 0.3 s of every start, and nobody attaches to a batch run.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

GRACE_S: Final = 2.0
"""Time for the running cell's own clean-up after the runner is gone, seconds."""


def end_with_runner(tether: int, folder: Path) -> None:
    """
    Wait for the runner to go, then interrupt the running cell, remove the sockets and leave.

    Args:
        tether: Read end of the pipe whose write end only the runner holds.
        folder: The private folder of the connection file and sockets.
    """
    while os.read(tether, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)  # ipykernel ignores it between cells
    time.sleep(GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Start the kernel; returns when it is shut down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until ipykernel handles it, an interrupt must not cut the boot
    tether = int(sys.argv.pop(1))
    os.set_inheritable(tether, False)
    folder = Path(sys.argv[sys.argv.index("-f") + 1]).parent
    threading.Thread(target=end_with_runner, args=(tether, folder), daemon=True).start()
    os.environ["JPY_PARENT_PID"] = "1"  # turns off ipykernel's own watch, which would cut the grace short

    sys.modules["debugpy"] = None  # type: ignore[assignment]  # how Python spells "no such module"
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
