import sys
from pathlib import Path

import pytest

from benchmarks.servers.processes import Server, ServerError, family, free_port

# Answers one request after the other, and has a child that would outlive it.
_PROGRAM = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(child.pid).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_server_is_stopped_with_all_that_it_started():
    port = free_port()
    with Server("test", [sys.executable, "-c", _PROGRAM, str(port)], port) as server:
        child = int(server.await_answer("/", 60).body)
        pid = server.pid
        assert set(family(pid)) == {pid, child}
        assert server.memory_mb() > 1
        assert server.cpu_s() >= 0
    assert not alive(pid)
    assert not alive(child)


def test_what_a_dead_leader_left_is_stopped_too():
    port = free_port()
    program = "import subprocess, sys; subprocess.Popen(['sleep', '600']); sys.exit(3)"
    with Server("test", [sys.executable, "-c", program], port) as server:
        with pytest.raises(ServerError, match="ended with code 3"):
            server.await_answer("/", 60)
        left = [pid for pid in family(server.pid) if pid != server.pid]
        assert len(left) == 1
    assert not alive(left[0])


def test_the_reason_is_told_with_the_end_of_the_log():
    port = free_port()
    program = "print('no such bundle'); raise SystemExit(2)"
    with (
        Server("test", [sys.executable, "-c", program], port) as server,
        pytest.raises(ServerError, match="no such bundle"),
    ):
        server.await_answer("/", 60)
