"""Tests of the client against a live agent: A2E_ADDR=unix:PATH python3 -m unittest test_a2e."""

import os
import threading
import time
import unittest
from typing import Callable

from a2e import A2EError, Completed, Disconnected, Process, Session

ADDRESS = os.environ["A2E_ADDR"]


class Client(unittest.TestCase):
    def setUp(self) -> None:
        self.session = Session.connect(ADDRESS)
        self.addCleanup(self.session.close)

    def bash(self, script: str) -> Process:
        return self.session.spawn(["bash", "-c", script])

    def test_run(self) -> None:
        done = self.session.run(["bash", "-c", "read x; echo $x $A; pwd; echo e >&2; exit 3"], "hi\n", "/tmp", {"A": "b"})
        self.assertEqual(done, Completed("hi b\n/tmp\n", "e\n", 3))
        self.assertEqual(self.session.run(["bash", "-c", "sleep 60"], timeout=1).code, None)
        self.assertEqual(self.session.run(["bash", "-c", "exit 0"], "x" * 1000000).code, 0)

    def test_streams_are_read_for_themselves(self) -> None:
        p = self.bash("echo 1; echo a >&2; echo 2; echo b >&2; printf rest; exit 4")
        self.assertEqual(p.wait(20).code, 4)
        self.assertEqual(list(p.lines()), ["1\n", "2\n", "rest"])
        self.assertEqual(p.read_line("stderr"), "a\n")
        self.assertEqual(p.read("stderr"), "b\n")
        self.assertEqual(p.read_line(), "")
        self.assertEqual([e.code for e in p], [4])
        self.assertIsNone(p.next_event())
        self.assertEqual(p.status()["status"], "failed")

    def test_a_timeout_takes_nothing(self) -> None:
        p = self.bash("printf 'na'; sleep .5; printf 'me? '; read x; echo $x")
        with self.assertRaises(TimeoutError):
            p.read_line(timeout=0.3)
        p.read_until("name? ", timeout=20)
        p.write("é\n")
        self.assertEqual(p.read_line(timeout=20), "é\n")
        with self.assertRaises(EOFError):
            p.read_until("never", timeout=20)

    def test_bytes(self) -> None:
        p = self.bash("cat")
        p.write(b"\xff\x00\n", eof=True)
        self.assertEqual(b"".join(e.raw for e in p), b"\xff\x00\n")

    def test_refusals(self) -> None:
        refusals: "dict[str, Callable[[], object]]" = {
            "not_allowed": lambda: self.session.spawn(["sh"]),
            "bad_request": lambda: self.session.spawn([]),
            "unknown_proc": lambda: self.session.attach("nobody"),
        }
        for code, refused in refusals.items():
            with self.assertRaises(A2EError) as e:
                refused()
            self.assertEqual(e.exception.code, code)
        p = self.bash("exec <&-; sleep 60")
        with p:
            with self.assertRaises(A2EError) as e:
                while True:
                    p.write("x")
            self.assertEqual(e.exception.code, "stdin_closed")
        self.assertEqual(p.wait(20).stream, "killed")

    def test_cuts_lose_nothing(self) -> None:
        p = self.bash("for i in {1..300}; do echo $i; sleep .002; done")
        stop = threading.Event()

        def cutter() -> None:
            while not stop.wait(0.05):
                self.session.cut()

        t = threading.Thread(target=cutter)
        t.start()
        self.assertEqual([int(line) for line in p.lines()], list(range(1, 301)))
        stop.set()
        t.join()
        self.assertEqual(p.wait(20).code, 0)

    def test_many_threads(self) -> None:
        outs: "dict[int, str]" = {}

        def work(n: int) -> None:
            outs[n] = self.session.run(["bash", "-c", f"cat; echo {n}"], f"in {n}\n").stdout

        threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(outs, {n: f"in {n}\n{n}\n" for n in range(12)})

    def test_another_program_goes_on(self) -> None:
        p = self.bash("echo one; read x; echo two; exit 5")
        self.assertEqual(p.read_line(timeout=20), "one\n")
        self.session.close()
        with Session.connect(ADDRESS, self.session.id, self.session.last_seq) as again:
            [row] = again.processes()
            q = again.attach(row["proc_id"])
            q.write("\n")
            self.assertEqual(q.read_line(timeout=20), "two\n")
            self.assertEqual(q.wait(20).code, 5)
        with Session.connect(ADDRESS, self.session.id, 0) as again:
            self.assertEqual(list(again.attach(p.proc_id).lines()), ["one\n", "two\n"])

    def test_a_session_that_was_taken(self) -> None:
        mine = Session.connect(ADDRESS, retry=0)
        with Session.connect(ADDRESS, mine.id) as theirs:
            with self.assertRaises(Disconnected):
                while True:
                    mine.run(["bash", "-c", ":"])
            self.assertEqual(theirs.run(["bash", "-c", "echo x"]).stdout, "x\n")
        mine.close()
        with self.assertRaises(A2EError) as e:
            Session.connect(ADDRESS, "nobody")
        self.assertEqual(e.exception.code, "unknown_session")

    def test_close_is_quick(self) -> None:
        began = time.monotonic()
        for _ in range(20):
            s = Session.connect(ADDRESS)
            s.cut()
            s.close()
        self.assertLess(time.monotonic() - began, 10)


if __name__ == "__main__":
    unittest.main()
