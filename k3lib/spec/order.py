"""What was ordered of a rented node, in the words of an order; what was delivered is compared with it."""

from __future__ import annotations

from pydantic import Field

from k3lib.spec.model import Strict
from k3lib.spec.vocabulary import HostLink


class NodeOrder(Strict):
    """
    An order. None means that nothing was agreed, and then nothing is compared.

    Args:
        gpu: Kind of GPU, `B300`.
        gpus: GPUs over all hosts.
        hosts: Hosts.
        gpu_memory_gib: Memory of one GPU as its driver reports it, GiB.
        driver_branch: Lowest branch of the driver, 580.
        cuda: Lowest CUDA that the driver supports, `13.0`.
        machine: Architecture of the hosts, `x86_64` or `aarch64`.
        memory_gib: Memory of one host, GiB.
        free_disk_tb: Free space where the weights go, TB (decimal).
        link: What joins the hosts.
    """

    gpu: str | None = None
    gpus: int | None = Field(default=None, ge=1)
    hosts: int | None = Field(default=None, ge=1)
    gpu_memory_gib: float | None = Field(default=None, gt=0)
    driver_branch: int | None = Field(default=None, ge=1)
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    machine: str | None = None
    memory_gib: float | None = Field(default=None, gt=0)
    free_disk_tb: float | None = Field(default=None, gt=0)
    link: HostLink | None = None

    def lines(self) -> dict[str, object]:
        """What was agreed, name to value."""
        return {name: value for name, value in self if value is not None}
