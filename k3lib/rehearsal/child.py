"""
A process that stands for vLLM's EngineCore: named like it, and, like it, alive for a while after its parent was killed.

Run as a file by `serve.py`, with `VLLM::EngineCore` as its first word; standard library only. A real EngineCore
outlives a killed API server by 18 s and more; this one ends after 20.
"""

import contextlib
import os
import signal
import sys
import time

ORPHAN_LIFE_S = 20.0


def main() -> None:
    """Sleep until the parent is gone, then a little longer."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
        comm.write("VLLM::EngineCor")
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
    time.sleep(ORPHAN_LIFE_S)


if __name__ == "__main__":
    main()
