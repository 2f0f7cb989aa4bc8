"""A client of the agent front (PROTOCOL.md, part two). Python 3.9, standard library only.

    with Session.connect("unix:/run/supervisor/a2e.sock") as session:
        print(session.run(["ls", "/"]).stdout)
        with session.spawn(["python3", "-i"]) as python:
            python.write("print(6 * 7)\n")
            print(python.read_line(timeout=10))

A session outlives its connection: when that breaks, it is made again in the
background, and the agent is told which event came last, so that none is missed
or seen twice. It outlives this program too: keep `session.id` and
`session.last_seq`, and give them to Session.connect, then attach to its
processes.
"""

from __future__ import annotations

import base64
import collections
import itertools
import json
import socket
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from typing import IO, Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar

Message = Dict[str, Any]
T = TypeVar("T")


class A2EError(Exception):
    """What the agent refused. `code` is stable: unknown_proc, proc_dead, proc_limit, not_allowed, …

    `written` is how many bytes a write that failed did write.
    """

    def __init__(self, error: str, written: int = 0) -> None:
        super().__init__(error)
        self.code = error.partition(":")[0]
        self.written = written


class Disconnected(A2EError):
    """The connection broke: before a reply came, or for longer than it is tried again."""

    def __init__(self, why: str) -> None:
        super().__init__(f"disconnected: {why}")


@dataclass(frozen=True)
class Event:
    """One event of a process: text, a gap in it, or the end."""

    seq: int
    proc_id: str
    stream: str  # stdout, stderr or killed
    text: str = ""
    raw: bytes = b""
    partial: bool = False  # the beginning of a line: a prompt
    dropped: int = 0  # bytes that were lost before this event
    code: Optional[int] = None  # of an exit

    @property
    def is_exit(self) -> bool:
        return self.stream == "killed" or self.code is not None


@dataclass(frozen=True)
class Completed:
    """What a command that was run to its end has left."""

    stdout: str
    stderr: str
    code: Optional[int]  # None if it was killed, or timed out
    dropped: int = 0  # bytes of output that were lost


def parse_event(m: Message) -> Event:
    data = json.loads(str(m["data"]))
    text = data.get("text", "")
    raw = base64.b64decode(data["base64"]) if "base64" in data else text.encode()
    return Event(
        m["seq"], m["proc_id"], m["stream_type"], text, raw,
        data.get("partial", False), data.get("dropped", 0), data.get("code"),
    )  # fmt: skip


class Replaced(Disconnected):
    """The agent was replaced by another image, which speaks on the same pipes."""


class Connection:
    """Lines of JSON in both directions, over a socket or a pair of pipes.

    `close` ends it from any thread; then who reads from it releases it.
    """

    def __init__(self, reader: IO[bytes], writer: IO[bytes], close: Callable[[], None]) -> None:
        self._reader, self._writer, self.close = reader, writer, close
        self._sending, self._over = threading.Lock(), False

    def send(self, m: Message) -> None:
        with self._sending:
            if self._over:
                raise Disconnected("another connection has begun")
            try:
                self._writer.write(json.dumps(m).encode() + b"\n")
                self._writer.flush()
            except (OSError, ValueError) as e:
                raise Disconnected(str(e)) from e

    def receive(self) -> Message:
        try:
            line = self._reader.readline()
        except (OSError, ValueError) as e:
            raise Disconnected(str(e)) from e
        if not line.endswith(b"\n"):
            raise Disconnected("the agent closed it")
        message: Message = json.loads(line)
        if message["type"] == "error" and not message["req_id"] and str(message["error"]).startswith("upgrading"):
            raise Replaced(str(message["error"]))
        return message

    def release(self) -> None:
        """Lets go of what was closed."""
        for file in (self._writer, self._reader):
            try:
                file.close()
            except OSError:  # what was not sent is lost
                pass

    def again(self) -> "Connection":
        """The next connection over the same pipes. On this one nothing is sent any more."""
        with self._sending:
            self._over = True
        return Connection(self._reader, self._writer, self.close)


def dial(address: str) -> Connection:
    """Connects to unix:PATH, tcp:HOST:PORT or vsock:CID:PORT."""
    network, _, rest = address.partition(":")
    if network == "unix":
        s = socket.socket(socket.AF_UNIX)
        target: Any = rest
    elif network == "tcp":
        s = socket.socket(socket.AF_INET)
        host, _, port = rest.rpartition(":")
        target = (host, int(port))
    elif network == "vsock":
        s = socket.socket(socket.AF_VSOCK)
        cid, _, port = rest.partition(":")
        target = (int(cid), int(port))
    else:
        raise ValueError(f"bad address {address!r}: want unix:PATH, tcp:HOST:PORT or vsock:CID:PORT")
    try:
        s.connect(target)
    except OSError as e:
        s.close()
        raise Disconnected(f"{address}: {e}") from e

    def close() -> None:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        s.close()

    return Connection(s.makefile("rb"), s.makefile("wb"), close)


def launch(argv: Sequence[str]) -> Connection:
    """Starts an agent that speaks on its stdin and stdout (`supervisor serve --a2e stdio`).

    Closing the connection ends the agent; its processes and sessions live on for the next one.
    """
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdin is not None and p.stdout is not None
    stdin, stdout = p.stdin, p.stdout

    def close() -> None:
        try:
            stdin.close()
        except OSError:
            pass
        p.wait()

    return Connection(stdout, stdin, close)


# Refusals of a handshake that pass.
_PASSING = {"upgrading", "shutting_down", "registry_full", "journal_failed"}


class Session:
    """A session. It may be used by several threads."""

    def __init__(
        self, connect: Callable[[], Connection], session_id: str = "", last_seq: Optional[int] = None, retry: float = 10.0
    ) -> None:
        """Opens a session, or goes on with the one of that id, behind the event `last_seq`.

        Without `last_seq` it goes on with the events that were not sent to anybody. `retry` is for how many
        seconds a broken connection is tried again.
        """
        self._connect, self._retry = connect, retry
        self._sending = threading.Lock()  # for one message at a time: whoever reads never waits for it
        self._lock = threading.Condition()
        self._replies: Dict[str, Message] = {}
        self._procs: Dict[str, Process] = {}
        self._early: Dict[str, List[Event]] = {}  # of processes that nobody has asked for
        self._broken: Optional[Disconnected] = None
        self._closed = False
        self.id = session_id
        self.last_seq = last_seq if session_id else 0
        self._conn = self._handshake()
        self._reader = threading.Thread(target=self._read, name="a2e", daemon=True)
        self._reader.start()

    @classmethod
    def connect(
        cls, address: str, session_id: str = "", last_seq: Optional[int] = None, retry: float = 10.0
    ) -> "Session":
        """A session over unix:PATH, tcp:HOST:PORT or vsock:CID:PORT; see Session for the rest."""
        return cls(lambda: dial(address), session_id, last_seq, retry)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. The session and its processes live on for a while."""
        with self._lock:
            self._closed = True
            conn = self._conn
        conn.close()
        self._reader.join()

    def cut(self) -> None:
        """Breaks the connection, as a network might."""
        self._conn.close()

    def spawn(
        self, cmd: Sequence[str], cwd: str = "", env: Optional[Mapping[str, str]] = None, stdin: bool = True, timeout: int = 0
    ) -> "Process":
        """Starts a command. `timeout` is in seconds, 0 is none; without `stdin` its input is empty."""
        reply = self._ask(
            "proc/spawn", session_id=self.id, cmd=list(cmd), cwd=cwd, env=dict(env or {}),
            stdin_mode="pipe" if stdin else "null", timeout=timeout,
        )  # fmt: skip
        return self._process(str(reply["proc_id"]), int(reply["pid"]))

    def run(
        self, cmd: Sequence[str], input: "str | bytes" = b"", cwd: str = "", env: Optional[Mapping[str, str]] = None, timeout: int = 0
    ) -> Completed:
        """Runs a command to its end, with all of its input at once."""
        process = self.spawn(cmd, cwd, env, stdin=bool(input), timeout=timeout)
        if input:
            try:
                process.write(input, eof=True)
            except A2EError as e:
                if e.code not in ("proc_dead", "stdin_closed"):  # it did not want it all
                    process.kill("SIGKILL")
                    raise
        end = process.wait()
        return Completed(process.read("stdout"), process.read("stderr"), end.code, process.dropped)

    def attach(self, proc_id: str) -> "Process":
        """A process that this session has already."""
        return self._process(proc_id, int(self.status(proc_id)["pid"]))

    def status(self, proc_id: str) -> Message:
        """The ProcStatus of a process, and `status`, its one word."""
        reply = self._ask("proc/status", proc_id=proc_id)
        return {**reply["proc"], "status": reply["status"]}

    def processes(self) -> List[Message]:
        """The ProcStatus of each process of the session."""
        return list(self._ask("proc/status", proc_id="")["procs"])

    def _process(self, proc_id: str, pid: int) -> "Process":
        with self._lock:
            p = self._procs.get(proc_id)
            if p is None:
                p = self._procs[proc_id] = Process(self, proc_id, pid)
                for event in self._early.pop(proc_id, []):
                    p._take(event)
            return p

    def _handshake(self, conn: Optional[Connection] = None) -> Connection:
        conn = conn or self._connect()
        hello: Message = {"type": "handshake/req", "id": str(uuid.uuid4()), "version": "1.0", "session_id": self.id}
        if self.last_seq is not None:
            hello["last_seq"] = self.last_seq
        try:
            conn.send(hello)
            reply = conn.receive()
            while reply.get("req_id") not in (hello["id"], ""):  # it answers what an upgrade has left behind
                reply = conn.receive()
            if reply.get("error"):
                raise A2EError(str(reply["error"]))
        except Replaced:
            raise  # it goes on over the same pipes
        except A2EError:
            conn.close()
            conn.release()
            raise
        self.id = str(reply["session_id"])
        return conn

    def _ask(self, kind: str, **fields: object) -> Message:
        """Sends a request and waits for its reply.

        A request that could not be sent waits for the next connection. One whose reply did not come is not
        sent again: it may have been carried out.
        """
        request = str(uuid.uuid4())
        message: Message = {"type": kind + "/req", "id": request, "version": "1.0", "ts": time.time(), **fields}
        with self._sending:
            conn = self._send(message)
        with self._lock:
            while request not in self._replies:
                if self._conn is not conn or self._broken:
                    raise self._broken or Disconnected("before the reply: it may have been carried out")
                self._lock.wait()
            reply = self._replies.pop(request)
        if reply.get("error"):
            raise A2EError(str(reply["error"]), int(reply.get("written", 0)))
        return reply

    def _send(self, m: Message) -> Connection:
        while True:
            with self._lock:
                if self._broken:
                    raise self._broken
                conn = self._conn
            try:
                conn.send(m)
                return conn
            except Disconnected:
                with self._lock:
                    while self._conn is conn and not self._broken:
                        self._lock.wait()

    def _read(self) -> None:
        while True:
            try:
                m = self._conn.receive()
            except Disconnected as e:
                if not isinstance(e, Replaced):
                    self._conn.release()
                if not self._resume(e):
                    return
                continue
            with self._lock:
                self._sort(m)
                self._lock.notify_all()

    def _sort(self, m: Message) -> None:
        if m.get("type") != "proc/read/event":
            self._replies[str(m.get("req_id"))] = m
            return
        event = parse_event(m)
        self.last_seq = event.seq
        p = self._procs.get(event.proc_id)
        if p is None:
            self._early.setdefault(event.proc_id, []).append(event)
        else:
            p._take(event)

    def _resume(self, why: Disconnected) -> bool:
        """Connects again, unless the session was closed or that takes too long."""
        end = time.monotonic() + self._retry
        conn = None
        while conn is None and not self._closed and time.monotonic() < end:
            try:
                conn = self._handshake(self._conn.again() if isinstance(why, Replaced) else None)
            except A2EError as e:
                why = e if isinstance(e, Disconnected) else Disconnected(str(e))
                if not isinstance(e, Disconnected) and e.code not in _PASSING:
                    break
                time.sleep(0.05)
        with self._lock:
            if conn is not None and not self._closed:
                self._conn = conn
            else:
                self._broken = why
            self._lock.notify_all()
        if conn is not None and self._broken:
            conn.close()
            conn.release()
        return self._broken is None


class Process:
    """A process of a session. What it says is kept until it is read, each stream for itself.

    As a context it is killed at the end, if it still runs.
    """

    def __init__(self, session: Session, proc_id: str, pid: int) -> None:
        self._session, self.proc_id, self.pid = session, proc_id, pid
        self._texts: Dict[str, Deque[Event]] = {"stdout": collections.deque(), "stderr": collections.deque()}
        self._popped = {"stdout": 0, "stderr": 0}  # events of each that were read
        self._told = False  # the exit, by next_event
        self.exit: Optional[Event] = None  # the last event
        self.dropped = 0  # bytes that were lost so far, for they were not taken in time

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill("SIGKILL")
        except A2EError as e:
            if e.code not in ("proc_dead", "unknown_proc", "disconnected"):
                raise

    def _take(self, event: Event) -> None:
        self.dropped += event.dropped
        if event.is_exit:
            self.exit = event
        else:
            self._texts[event.stream].append(event)

    def write(self, data: "str | bytes", eof: bool = False) -> None:
        """Writes to the process's stdin, and closes it with `eof`. It has 5 s to take all of it."""
        if isinstance(data, bytes):
            fields = {"data": base64.b64encode(data).decode(), "encoding": "base64"}
        else:
            fields = {"data": data}
        self._session._ask("proc/write", proc_id=self.proc_id, eof=eof, **fields)

    def kill(self, signal: str = "SIGTERM") -> str:
        """Signals the process's group; returns the status, which is `running` if it takes more than 5 s."""
        return str(self._session._ask("proc/kill", proc_id=self.proc_id, signal=signal)["state"])

    def status(self) -> Message:
        """The ProcStatus, and `status`, its one word: running, completed, failed, killed or timedout."""
        return self._session.status(self.proc_id)

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event of any stream, or None after the exit. TimeoutError if there is none in time."""

        def take() -> Optional[Event]:
            heads = [(queue[0].seq, stream) for stream, queue in self._texts.items() if queue]
            if heads:
                stream = min(heads)[1]
                event = self._texts[stream][0]
                self._pop(stream, 1)
                return event
            if self.exit is None or self._told:
                return None
            self._told = True
            return self.exit

        return self._await(take, timeout)

    def __iter__(self) -> Iterator[Event]:
        """All events, up to the exit."""
        while True:
            event = self.next_event()
            if event is None:
                return
            yield event

    def lines(self, stream: str = "stdout") -> Iterator[str]:
        """The lines of a stream, to its end."""
        return iter(lambda: self.read_line(stream), "")

    def read_line(self, stream: str = "stdout", timeout: Optional[float] = None) -> str:
        """The next line of a stream, with its end; what is left, and then "", when the process has ended.

        After a TimeoutError nothing was taken.
        """
        text = self._gather(stream, "\n", timeout)
        return self.read(stream) if text is None else text

    def read_until(self, text: str, stream: str = "stdout", timeout: Optional[float] = None) -> str:
        """Everything of a stream until it ends with `text`, a prompt for example.

        EOFError if the process ends first. After an error nothing was taken.
        """
        seen = self._gather(stream, text, timeout)
        if seen is None:
            raise EOFError(f"the process ended before {text!r}")
        return seen

    def read(self, stream: str = "stdout") -> str:
        """What came of a stream so far and was not read."""
        with self._session._lock:
            text = "".join(event.text for event in self._texts[stream])
            self._pop(stream, len(self._texts[stream]))
            return text

    def wait(self, timeout: Optional[float] = None) -> Event:
        """The exit. TimeoutError if it does not come in time. What was said can still be read."""
        end = self._await(lambda: self.exit, timeout)
        assert end is not None
        return end

    def _pop(self, stream: str, count: int) -> None:
        for _ in range(count):
            self._texts[stream].popleft()
        self._popped[stream] += count

    def _gather(self, stream: str, ending: str, timeout: Optional[float]) -> Optional[str]:
        """Takes texts of a stream up to one that ends so; None, and nothing, if the process ends first."""
        parts: List[str] = []
        tail, popped = "", -1

        def take() -> Optional[str]:
            nonlocal tail, popped
            if popped != self._popped[stream]:  # somebody else reads it, too
                tail, popped = "", self._popped[stream]
                parts.clear()
            for event in itertools.islice(self._texts[stream], len(parts), None):
                parts.append(event.text)
                tail = (tail + event.text)[-len(ending) :]
                if tail == ending:
                    self._pop(stream, len(parts))
                    return "".join(parts)
            return None

        return self._await(take, timeout)

    def _await(self, take: Callable[[], Optional[T]], timeout: Optional[float]) -> Optional[T]:
        """Waits until take has something. None if the process has ended and it has not."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._session._lock:
            while True:
                taken = take()
                if taken is not None or self.exit is not None:
                    return taken
                if self._session._broken:
                    raise self._session._broken
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"nothing within {timeout} s")
                self._session._lock.wait(left)


__all__ = ["A2EError", "Completed", "Connection", "Disconnected", "Event", "Process", "Session", "dial", "launch"]
