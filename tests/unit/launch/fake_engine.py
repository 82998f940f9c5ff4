"""
An engine in forty lines: serves /health as told and starts a worker that nothing but SIGKILL ends.

`fake_engine.py serve MODEL --host H --port P`; FAKE_HEALTH is `ok`, `hang`, `drip` or `none`; FAKE_WORKER makes a
stubborn worker in a session of its own, twice forked; FAKE_RENAME=1 also wipes the worker's environment, as
vLLM's processes do; FAKE_EXIT=N ends with that code after 0.2 s. Each process writes its id to FAKE_PIDS.
"""

import contextlib
import os
import signal
import socket
import sys
import time

HEALTH = os.environ.get("FAKE_HEALTH", "ok")


def note_pid(word):
    with open(os.environ["FAKE_PIDS"], "a") as file:
        file.write(f"{word} {os.getpid()}\n")


def start_worker():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note_pid("worker")
            words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)", "fake-worker"]
            os.execve(words[0], words, {} if "FAKE_RENAME" in os.environ else os.environ)
        os._exit(0)
    os.wait()


def serve(host, port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen(16)
    while True:
        connection, _ = server.accept()
        with contextlib.suppress(OSError), connection:
            answer(connection)


def answer(connection):
    connection.recv(4096)
    if HEALTH == "hang":
        time.sleep(60)
    if HEALTH == "drip":
        for _ in range(600):
            connection.send(b"H")
            time.sleep(0.1)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def leave(*_):
    print("bye", flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
note_pid("engine")
print("hello", os.environ.get("TMPDIR"), flush=True)
if "FAKE_WORKER" in os.environ:
    start_worker()
if "FAKE_EXIT" in os.environ:
    time.sleep(0.2)
    os._exit(int(os.environ["FAKE_EXIT"]))
if HEALTH == "none":
    time.sleep(120)
serve(sys.argv[4], int(sys.argv[6]))
