"""
The rehearsal as a program of its own.

    python -m k3lib.rehearsal serve MODEL …      the stand-in engine, with vLLM's own arguments
    python -m k3lib.rehearsal machine …          the pretend machine as a shell
    python -m k3lib.rehearsal figures            what the model gives, each number beside its source
"""

from __future__ import annotations

import os
import sys

from k3lib.errors import K3Error


def main() -> int:
    """
    Run it.

    Returns:
        vLLM's exit codes; 2 also for a wrong K3_REHEARSAL_ variable, told in four lines.
    """
    try:
        if sys.argv[1:2] == ["machine"]:
            return _run_machine()
        if sys.argv[1:2] == ["figures"]:
            from k3lib.rehearsal.figures import print_figures

            return print_figures()
        return _run_engine()
    except K3Error as error:
        print(error, file=sys.stderr)
        return 2


# Each command imports what it needs: the engine's start-up time is part of a contract.
def _run_engine() -> int:
    import asyncio

    from k3lib.rehearsal.arguments import parse_arguments
    from k3lib.rehearsal.config import read_stage
    from k3lib.rehearsal.profiles import read_profile
    from k3lib.rehearsal.serve import run_server

    values = parse_arguments(sys.argv[1:], read_profile(os.environ))
    return asyncio.run(run_server(values, read_stage(os.environ)))


def _run_machine() -> int:
    from k3lib.rehearsal.config import read_stage
    from k3lib.rehearsal.machine import run_shell

    return run_shell(sys.argv[2:], read_stage(os.environ))


if __name__ == "__main__":
    sys.exit(main())
