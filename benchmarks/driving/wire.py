"""HTTP/1.1 as bare as it gets: requests are bytes made once, answers are cut at their length.

A client library costs more than a small network does; on two shared cores the client must not be
what is measured. The same code drives every server.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

_END = b"\r\n\r\n"
_SEND_BUFFER = 1 << 20
"""Room for a whole photo, so that sending it is one system call."""


def post(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """A POST as it goes over the wire."""
    lines = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
    lines.setdefault("Content-Type", "image/jpeg")
    return _head("POST", path, lines) + body


def get(path: str) -> bytes:
    """A GET as it goes over the wire."""
    return _head("GET", path, {"Host": "localhost"})


def form(path: str, field: str, body: bytes) -> bytes:
    """A POST of one file as multipart form, as browsers and tutorials send it."""
    boundary = "b0undary4photos"
    part = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="photo.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    )
    whole = part.encode() + body + f"\r\n--{boundary}--\r\n".encode()
    return post(path, whole, {"Content-Type": f"multipart/form-data; boundary={boundary}"})


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, head and body, unparsed until it is asked for."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        """A header's value."""
        wanted = name.lower().encode() + b":"
        for line in self.head.split(b"\r\n"):
            if line[: len(wanted)].lower() == wanted:
                return line[len(wanted) :].strip().decode("latin-1")
        return None

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def closes(self) -> bool:
        """Whether the server closes the connection after it."""
        return b"connection: close" in self.head.lower()


def parse(buffer: bytes | bytearray) -> Answer | None:
    """The answer in a buffer, or None while some of it is missing."""
    end = buffer.find(_END)
    if end < 0:
        return None
    head = bytes(buffer[:end])
    lower = head.lower()
    start = end + len(_END)
    at = lower.find(b"\r\ncontent-length:")
    if at >= 0:
        stop = lower.find(b"\r\n", at + 2)
        length = int(lower[at + 17 : stop if stop >= 0 else None])
        if len(buffer) < start + length:
            return None
        body = bytes(buffer[start : start + length])
    elif b"transfer-encoding: chunked" in lower:
        chunks = _chunks(buffer, start)
        if chunks is None:
            return None
        body = chunks
    else:
        body = b""
    return Answer(int(head[9:12]), head, body)


def _chunks(buffer: bytes | bytearray, at: int) -> bytes | None:
    found = []
    while True:
        stop = buffer.find(b"\r\n", at)
        if stop < 0:
            return None
        size = int(bytes(buffer[at:stop]).split(b";")[0], 16)
        at = stop + 2
        if len(buffer) < at + size + 2:
            return None
        if size == 0:
            return b"".join(found)
        found.append(bytes(buffer[at : at + size]))
        at += size + 2


def tune(sock: socket.socket) -> None:
    """No Nagle, and a buffer that takes a photo at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)


class Client:
    """One client on one kept-alive connection, blocking."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, request: bytes) -> Answer:
        """Send and wait for the whole answer."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_s)
            tune(self._socket)
        try:
            self._socket.sendall(request)
            buffer = bytearray()
            while (answer := parse(buffer)) is None:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("The server hung up in the middle of an answer.")
                buffer += data
        except OSError:
            self.close()
            raise
        if answer.closes:
            self.close()
        return answer

    def time(self, request: bytes) -> tuple[float, Answer]:
        """Milliseconds from the first byte sent to the last received, and the answer."""
        begun = time.perf_counter()
        answer = self.send(request)
        return (time.perf_counter() - begun) * 1e3, answer
