"""K3 Workbook: what fails when Kimi K3 is served on vLLM, why, and what to do next."""

__version__ = "0.1.0"
