"""What a comparison with the peers needs: one exported network, one CPU decision, servers."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driving.photo import photo
from benchmarks.peers.environments import DEFAULT_DIRECTORY, ensure
from benchmarks.peers.export import export_network
from benchmarks.peers.registry import Peer, PeerEngine, Setup, select
from benchmarks.peers.running import PeerServer
from benchmarks.servers.our_service import OurService
from san_core.bundle import load
from service.engines.openvino.cpu_probe import probe
from service.engines.openvino.engine import user_cache


def add_options(options: argparse.ArgumentParser) -> None:
    """What a comparison can be told."""
    options.add_argument("--peers", default="all", help="comma-separated names (default: all)")
    options.add_argument("--peers-dir", type=Path, default=DEFAULT_DIRECTORY)


@dataclass(frozen=True)
class Contest:
    """Everybody serves `resolution` of one bundle and is sent `body`."""

    bundle: Path | None
    resolution: int
    accuracy: float
    """Top-1 of that resolution in float, as the bundle tells; 0 if it does not."""
    has_int8: bool
    peers: list[Peer]
    body: bytes
    export: Path
    env: dict[str, str]
    peers_dir: Path

    def ours(self, *options: str, name: str = "san-serve") -> OurService:
        """Our service, not yet started."""
        return OurService(self.bundle, options, name)

    def peer(self, peer: Peer, engine: PeerEngine, setup: Setup) -> PeerServer:
        """A peer, not yet started."""
        return PeerServer(peer, engine, setup, self.export, self.env, self.peers_dir)


@contextlib.contextmanager
def contest(args: argparse.Namespace) -> Iterator[Contest]:
    """Install what is missing and export the network; removes the export afterwards."""
    peers = select(args.peers)
    for peer in peers:
        ensure(peer, args.peers_dir)
    bundle = load(args.bundle)
    resolution = bundle.network.resolutions[0]
    measured = {
        (entry.resolution, entry.precision): entry.top1 for entry in bundle.manifest.accuracy
    }
    with tempfile.TemporaryDirectory(prefix="peers-export-") as directory:
        print(f"Exporting the network at {resolution} px …", flush=True)
        env = export_network(bundle, resolution, Path(directory), probe(user_cache()))
        yield Contest(
            args.bundle,
            resolution,
            measured.get((resolution, "float"), 0.0),
            any(precision == "int8" for _, precision in measured),
            peers,
            photo(),
            Path(directory),
            env,
            args.peers_dir,
        )
