"""Drives an interactive Python through the agent: python3 example.py unix:/run/supervisor/a2e.sock"""

import sys

from a2e import Session

with Session.connect(sys.argv[1]) as session:
    python = session.spawn(["python3", "-i", "-q"])
    python.read_until(">>> ", stream="stderr", timeout=20)
    python.write("total = sum(range(101))\n")
    python.read_until(">>> ", stream="stderr", timeout=20)

    session.cut()  # the network breaks; the session goes on
    python.write("print('total', total)\n")
    print(python.read_line(timeout=20), end="")

    python.write("raise SystemExit(3)\n")
    end = python.wait(timeout=20)
    print("exit", end.stream, end.code)
