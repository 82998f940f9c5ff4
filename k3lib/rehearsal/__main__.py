"""`python -m k3lib.rehearsal serve MODEL …`: the stand-in engine as a program of its own."""

from __future__ import annotations

import asyncio
import os
import sys

from k3lib.errors import K3Error
from k3lib.rehearsal.arguments import parse_arguments
from k3lib.rehearsal.config import read_stage
from k3lib.rehearsal.serve import run_server


def main() -> int:
    """
    Run it.

    Returns:
        vLLM's exit codes; 2 also for a wrong K3_REHEARSAL_ variable, told in four lines.
    """
    values = parse_arguments(sys.argv[1:])
    try:
        stage = read_stage(os.environ)
    except K3Error as error:
        print(error, file=sys.stderr)
        return 2
    return asyncio.run(run_server(values, os.environ, stage))


if __name__ == "__main__":
    sys.exit(main())
