"""Servers as child processes: started on a free port, awaited, watched, and always stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from benchmarks.driving.wire import Answer, Client, get

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class ServerError(RuntimeError):
    """A server did not start or died; the message has the end of its log."""


def free_port() -> int:
    """A port that is free right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _processes() -> dict[int, tuple[int, int]]:
    """Parent and session of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            after_name = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = int(after_name[1]), int(after_name[3])
    return found


def family(pid: int) -> list[int]:
    """A session leader, its session, and its descendants that have left the session."""
    processes = _processes()
    found = [pid, *(one for one, (_, session) in processes.items() if session == pid != one)]
    for one in found:
        found += [
            child
            for child, (parent, _) in processes.items()
            if parent == one and child not in found
        ]
    return found


def _born(pid: int) -> str | None:
    """When a process started, which with its id names it for good; None if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if after_name[0] != "Z":
            return after_name[19]
    return None


class Server:
    """One server: a command that listens on `port` on the loopback interface."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self._command = list(command)
        self._env = dict(env or {})
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> Self:
        """Start the process; it leads a group of its own, so that all of it can be stopped."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._env},
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether the process that was started has ended."""
        return self._process is None or self._process.poll() is not None

    def log(self, lines: int = 20) -> str:
        """The end of what it printed."""
        if self._log is None:
            return ""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def await_answer(
        self, request: bytes | str, timeout_s: float, wanted: Callable[[Answer], bool] | None = None
    ) -> Answer:
        """Ask until the answer is as wanted (a 200 by default)."""
        assert self._process is not None
        request = get(request) if isinstance(request, str) else request
        wanted = wanted or (lambda answer: answer.status == 200)
        deadline = time.monotonic() + timeout_s
        last = "no answer yet"
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerError(
                    f"{self.name} ended with code {self._process.returncode}:\n{self.log()}"
                )
            try:
                with Client(self.port, timeout_s=max(1.0, deadline - time.monotonic())) as client:
                    answer = client.send(request)
                if wanted(answer):
                    return answer
                last = f"status {answer.status}: {answer.body[:300]!r}"
            except (OSError, ValueError) as error:
                last = str(error)
            time.sleep(0.1)
        raise ServerError(
            f"{self.name} was not ready within {timeout_s:.0f} s ({last}):\n{self.log()}"
        )

    def memory_mb(self) -> float:
        """Resident memory of the process and its descendants."""
        pages = 0
        for pid in family(self.pid):
            with contextlib.suppress(OSError, ValueError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * _PAGE / 1e6

    def cpu_s(self) -> float:
        """Processor time that the process and its descendants have used."""
        ticks = 0
        for pid in family(self.pid):
            with contextlib.suppress(OSError, ValueError, IndexError):
                after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(after_name[11]) + int(after_name[12])
        return ticks / _TICKS

    def busy_share(self, seconds: float = 0.25) -> float:
        """How many cores it keeps busy, watched for so long."""
        before, began = self.cpu_s(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_s() - before) / (time.monotonic() - began)

    def await_idle(self, usual: float = 0.0, timeout_s: float = 20.0) -> bool:
        """Wait until it is about as idle as usual: whatever was queued is done."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.busy_share() < usual + 0.1:
                return True
        return False

    def stop(self, grace_s: float = 10.0) -> None:
        """SIGTERM to the process, then SIGKILL to whatever of its family is left."""
        process, self._process = self._process, None
        if process is None:
            return
        members = {pid: _born(pid) for pid in family(process.pid)}
        try:
            process.terminate()
            process.wait(grace_s)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            pass
        finally:
            # Some servers leave their workers behind; each is ended by its own id.
            deadline = time.monotonic() + grace_s
            while left := [pid for pid, born in members.items() if born and _born(pid) == born]:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            process.wait()
            if self._log is not None:
                self._log.close()
                self._log = None
