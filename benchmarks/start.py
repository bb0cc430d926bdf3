"""From the command to ready and to the first right answer, by phases; memory then and later.

    python -m benchmarks.start [--quick] [--starts 5] [--peers mosec,fastapi] [--triton]

A first start has an empty cache directory, a restart the one that the last start left. The answer
is right if it is the class that the complete service gives for the photo at 224 px. Peers serve one
fixed network of that size, exported before; they and our starts take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client, get
from benchmarks.peers.export import export_network
from benchmarks.peers.registry import PeerEngine, Setup, select
from benchmarks.peers.running import PeerServer
from benchmarks.peers.triton import Triton, triton_label, triton_request
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import Check, Report, table
from benchmarks.servers.our_service import OurService, classify
from benchmarks.servers.processes import Server
from san_core.bundle import load
from service.engines.openvino.cpu_probe import probe
from service.engines.openvino.disk_cache import user_cache

_RESOLUTION = 224
_UNSEEN = (216, 184, 152, 120, 88)
"""Resolutions that no frontier has."""
_LOOK_S = 0.01
_LIMIT_S = 300.0
FIRST, RESTART = "first start", "restart"


def _until(server: Server, request: bytes, right: str | None) -> tuple[float, str]:
    """Seconds until a 200 (with the right class), and the class."""
    began = time.perf_counter()
    while time.perf_counter() - began < _LIMIT_S:
        try:
            with Client(server.port, timeout_s=_LIMIT_S) as client:
                answer = client.send(request)
            if answer.status == 200:
                label = _label(answer.body)
                if right in (None, label):
                    return time.perf_counter() - began, label
        except (OSError, ValueError):
            pass
        time.sleep(_LOOK_S)
    raise SystemExit(f"{server.name} gave no right answer within {_LIMIT_S:.0f} s:\n{server.log()}")


def _label(body: bytes) -> str:
    said = json.loads(body)
    return str(said["predictions"][0]["label"]) if "predictions" in said else triton_label(said)


def _phases(server: Server, began: float) -> dict[str, float]:
    """Seconds since the start at which each phase ended, by the service's own log."""
    marks = {
        "imports": "Application startup complete",
        "bundle and engine": "loaded bundle ",
        "points built": "built ",
        "measured": ("measured ", "using the times"),
        "warmed up": "warmed up",
    }
    found: dict[str, float] = {}
    for line in server.log(200).splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        for name, start in marks.items():
            if str(entry["message"]).startswith(start):
                moment = time.mktime(time.strptime(entry["time"][:19], "%Y-%m-%dT%H:%M:%S"))
                found[name] = moment - time.timezone + float(entry["time"][19:23]) - began
    return found


def ours(cache: Path, body: bytes, right: str | None, *, complete: bool) -> dict[str, Any]:
    """One start of our service."""
    options = ["--log-level", "info", "--log-format", "json", "--cache-dir", str(cache)]
    began = time.time()
    with OurService(options=options) as server:
        ready, _ = _until(server, get("/readyz"), None)
        at_ready = server.memory_mb()
        answered, label = _until(server, classify(body, resolution=_RESOLUTION), right)
        fact: dict[str, Any] = {
            "ready_s": ready,
            "answer_s": ready + answered,
            "ready_mb": at_ready,
            "label": label,
            "phases": _phases(server, began),
        }
        if complete:
            while "complete: " not in server.log(50):
                time.sleep(0.5)
            fact["complete_s"] = time.time() - began
            fact["complete_mb"] = server.memory_mb()
            fact["cold_ms"] = [
                1000 * _until(server, classify(body, resolution=side), None)[0] for side in _UNSEEN
            ]
            fact["label"] = _until(server, classify(body, resolution=_RESOLUTION), None)[1]
    return fact


def peer(server: Server, request: bytes) -> dict[str, Any]:
    """One start of a peer."""
    with server:
        answered, label = _until(server, request, None)
        return {"answer_s": answered, "ready_mb": server.memory_mb(), "label": label}


def tell(made: Report) -> None:
    """The tables and the claims."""
    starts = made.data["starts"]
    rows = []
    for name, facts in starts.items():
        cells = [f"{_median(facts, 'ready_s'):.2f}" if "ready_s" in facts[0] else "-"]
        cells += [f"{_median(facts, 'answer_s'):.2f}", f"{_median(facts, 'ready_mb'):.0f}"]
        rows.append([name, *cells])
    made.say(f"Medians of {made.settings['starts']} starts each, in turns.")
    head = ["", "ready, s", f"first right answer at {_RESOLUTION} px, s", "resident then, MB"]
    made.say(table(head, rows))
    done = made.data["complete"]
    made.say(
        f"Complete (every point of the frontier built, measured and ready for batches) "
        f"{done['complete_s']:.0f} s after a first start: {done['complete_mb']:.0f} MB resident. "
        "A resolution that was never asked for is answered in "
        f"{statistics.median(done['cold_ms']):.0f} ms (median of {len(done['cold_ms'])})."
    )
    names = list(starts[FIRST][0]["phases"])
    rows = [
        [name, *(f"{_phase(starts[kind], name):.2f}" for kind in (FIRST, RESTART))]
        for name in names
    ]
    made.say("When each phase ended, seconds after the command (medians):")
    made.say(table(["", FIRST, RESTART], rows))
    for kind, bound in ((FIRST, 8.0), (RESTART, 3.0)):
        made.check(Check(f"{kind} to ready", _median(starts[kind], "ready_s"), "<=", bound, " s"))
        made.check(Check(f"{kind} to answer", _median(starts[kind], "answer_s"), "<=", bound, " s"))
    made.check(Check("resident at ready", _median(starts[FIRST], "ready_mb"), "<=", 700, " MB"))
    made.check(Check("resident when complete", done["complete_mb"], "<=", 1100, " MB"))


def _median(facts: list[dict[str, Any]], name: str) -> float:
    return statistics.median(fact[name] for fact in facts)


def _phase(facts: list[dict[str, Any]], name: str) -> float:
    return statistics.median(fact["phases"].get(name, float("nan")) for fact in facts)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--starts", type=int, default=5)
    options.add_argument("--peers", default="mosec,fastapi", help="comma-separated; empty: none")
    options.add_argument("--triton", action="store_true", help="Triton too: a wheel of 400 MB")
    args = options.parse_args()
    starts = 1 if args.quick else args.starts
    peers = select(args.peers) if args.peers and not args.quick else []
    made = report("start", "Start", args)
    body = photo()
    with tempfile.TemporaryDirectory() as home:
        kept, export = Path(home) / "kept", Path(home) / "export"
        export.mkdir()
        env = {}
        if peers or args.triton:
            env = export_network(load(), _RESOLUTION, export, probe(user_cache()))
        done = made.data["complete"] = ours(kept, body, None, complete=True)
        right = done["label"]
        found: dict[str, list[dict[str, Any]]] = {FIRST: [], RESTART: []}
        for number in range(starts):
            print(f"start {number + 1} of {starts}", file=sys.stderr, flush=True)
            fresh = Path(home) / f"fresh-{number}"
            found[FIRST].append(ours(fresh, body, right, complete=False))
            found[RESTART].append(ours(kept, body, right, complete=False))
            for each in peers:
                server = PeerServer(each, PeerEngine.OPENVINO, Setup.LATENCY, export, env)
                fact = peer(server, each.request(body))
                assert fact["label"] == right, (each.title, fact["label"], right)
                found.setdefault(each.title, []).append(fact)
            if args.triton:
                fact = peer(Triton(env, export), triton_request(body))
                assert fact["label"] == right, ("Triton", fact["label"], right)
                found.setdefault("Triton", []).append(fact)
        made.data["starts"] = found
    tell(made)
    made.write()


if __name__ == "__main__":
    main()
