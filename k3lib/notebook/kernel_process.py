"""
The kernel's process, from the runner's side: its private sockets, its tether, its end.

The kernel is reached over sockets in a private folder (IPC): no TCP port is taken, no other user can read
along, and ipykernel has nothing to warn about. This module imports jupyter_client only, so that the kernel can
boot while the rest of the Jupyter stack is being imported.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync

SOCKET_PATH_BYTES: Final = 90
"""Longest folder for sockets: Linux allows 107 bytes for a socket's whole path."""


class TetheredKernelManager(AsyncKernelManager):
    """Starts `k3lib.notebook.kernel` in the interpreter that runs us, whatever kernel the notebook names."""

    tether = -1

    @property
    def kernel_spec(self) -> KernelSpec:
        """What to start. Looking up an installed one would import IPython, 0.15 s, for the same interpreter."""
        words = [sys.executable, "-P", "-m", "k3lib.notebook.kernel", str(self.tether), "-f", "{connection_file}"]
        return KernelSpec(argv=words, display_name="Python 3", language="python", interrupt_mode="signal")


class KernelProcess:
    """
    One kernel, booting as soon as the block is entered and gone when it is left.

    Args:
        environment: Variables on top of ours; K3_BATCH=1 is added.
        cwd: Its working directory; ours if None.
    """

    def __init__(self, environment: dict[str, str], cwd: Path | None = None) -> None:
        self.environment = {**os.environ, **environment, "K3_BATCH": "1"}
        self.cwd = cwd

    def __enter__(self) -> Self:
        roomy = len(tempfile.gettempdir()) < SOCKET_PATH_BYTES - len("/k3-kernel-12345678")
        self._folder = Path(tempfile.mkdtemp(prefix="k3-kernel-", dir=None if roomy else "/tmp"))
        self._pipe = os.pipe()  # the kernel ends when this process does: k3lib.notebook.kernel
        try:
            self.manager = TetheredKernelManager(
                transport="ipc", ip=f"{self._folder}/s", connection_file=f"{self._folder}/kernel"
            )
            self.manager.tether = self._pipe[0]
            run_sync(self.manager.start_kernel)(
                env=self.environment,
                cwd=self.cwd,
                pass_fds=self._pipe[:1],
                extra_arguments=["--HistoryManager.hist_file=:memory:"],
            )
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.manager.has_kernel:  # the client shuts it down; this is for a block that was left before
            run_sync(self.manager.shutdown_kernel)(now=True)
        self._leave()

    def _leave(self) -> None:
        for end in self._pipe:
            os.close(end)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def how_it_ended(self) -> str:
        """Signal or exit code of a kernel that died."""
        code = await self.manager.provisioner.poll() if self.manager.provisioner else None
        if code is None:
            return "it no longer answers"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
