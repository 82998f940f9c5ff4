"""Bindings to what reads GPUs while a trial runs: NVML and AMD SMI."""
