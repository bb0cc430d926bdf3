"""A peer as a running server."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.peers.environments import DEFAULT_DIRECTORY, ensure
from benchmarks.peers.registry import HERE, Peer, PeerEngine, Setup
from benchmarks.servers.processes import Server, free_port


class PeerServer(Server):
    """One peer with one engine in one setup, in a working directory of its own."""

    def __init__(
        self,
        peer: Peer,
        engine: PeerEngine,
        setup: Setup,
        export: Path,
        env: dict[str, str],
        directory: Path = DEFAULT_DIRECTORY,
    ) -> None:
        cores = os.cpu_count() or 1
        workers = cores if setup is Setup.THROUGHPUT else 1
        port = free_port()
        binaries = ensure(peer, directory)
        self._home = Path(tempfile.mkdtemp(prefix=f"peer-{peer.name}-"))
        for name, text in peer.files(port, workers).items():
            (self._home / name).write_text(text)
        program, *arguments = peer.command
        command = [str(binaries / program), *(a.format(port=port) for a in arguments)]
        threads = max(1, cores // workers)
        super().__init__(
            f"{peer.title} ({engine}, {setup})",
            command,
            port,
            cwd=self._home,
            env={
                **env,
                "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
                "PYTHONPATH": str(HERE),
                "PEER_EXPORT": str(export),
                "PEER_ENGINE": engine,
                "PEER_THREADS": str(threads),
                "PEER_WORKERS": str(workers),
                "PEER_PORT": str(port),
                "OMP_NUM_THREADS": str(threads),
                # No peer is to tell anybody that it was measured.
                "BENTOML_DO_NOT_TRACK": "True",
                "DO_NOT_TRACK": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
                "LITSERVE_DISABLE_TELEMETRY": "1",
                # Nor to leave anything in the user's home, such as the token Ray makes itself.
                "HOME": str(self._home),
                "RAY_AUTH_MODE": "disabled",
            },
        )
        self.peer = peer
        self.engine = engine
        self.setup = setup

    def await_ready(self, request: bytes) -> PeerServer:
        """Wait until it classifies and its other workers have started, too."""
        self.await_answer(request, self.peer.start_seconds)
        self.await_idle()
        return self

    def stop(self, grace_s: float = 10.0) -> None:
        """Stop it, and remove its working directory."""
        super().stop(grace_s)
        shutil.rmtree(self._home, ignore_errors=True)
