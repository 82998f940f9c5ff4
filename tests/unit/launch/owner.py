"""A program that owns an engine, to be killed or interrupted: `owner.py PLAN.json LOG DONE [fork]`."""

import os
import sys
import time
from pathlib import Path

from k3lib.launch.engines import start_engine
from k3lib.spec.launch import LaunchPlan

plan = LaunchPlan.model_validate_json(Path(sys.argv[1]).read_text())
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
engine = start_engine(plan, log)
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(20)  # holds a copy of every descriptor of ours, as a forked helper would
    os._exit(0)
try:
    with engine:
        engine.wait_ready()
        print("ready", flush=True)
        if "stop" not in sys.argv:
            time.sleep(60)
        print("stopping", flush=True)
finally:
    Path(sys.argv[3]).write_text(engine.result().model_dump_json())
