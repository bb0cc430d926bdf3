"""An earlier release of the service, from a checkout of it."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.servers.our_service import START_SECONDS
from benchmarks.servers.processes import Server, free_port


class Earlier(Server):
    """`san serve` of a checkout, with this project's interpreter and packages."""

    def __init__(self, checkout: Path, bundle: Path | None = None) -> None:
        port = free_port()
        command = [sys.executable, "-m", "san_cli", "serve", "--port", str(port)]
        command += ["--log-level", "warning", "--cache-dir", str(checkout / ".cache" / "measured")]
        if bundle is not None:
            command += ["--bundle", str(bundle)]
        super().__init__("earlier", command, port, env={"PYTHONPATH": str(checkout)}, cwd=checkout)

    def await_ready(self) -> Earlier:
        """Wait until it serves and does nothing by itself."""
        self.await_answer("/readyz", START_SECONDS)
        self.await_idle(0.2)
        return self
