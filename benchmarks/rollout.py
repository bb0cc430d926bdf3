"""A worse bundle beside the one that serves: is it refused, is it taken back, does anybody notice?

    python -m benchmarks.rollout [--rounds 3] [--noise 1]

The candidate is the default bundle with noise on its weights. The service is a real one over HTTP;
the pictures are the console's six examples, in turn. First the same arrivals, with and without the
candidate in its shadow, in turns: what that costs promises. Then the candidate is to be promoted,
and is refused; then it serves a fifth of the clients, until it is taken back. It takes about four
minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from benchmarks.driving.open_loop import Sample, open_loop
from benchmarks.driving.wire import Client, post
from benchmarks.servers.our_service import OurService
from service.replay.traces import MIXED, scenario

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / "san_core" / "default_bundle" / "default.safetensors"
PHOTOS = sorted((ROOT / "service" / "http" / "web" / "assets" / "examples").glob("*.jpg"))
TRACES = ("poisson-0.5", "gamma4-0.5", "mixed-0.5")
_BUDGET_MS = 50.0
_CLIENTS = 40
_RATE = 20.0
_PATIENCE_S = 120.0
_BACK_S = 60.0
"""Within which a canary of a worse bundle must be taken back."""


def with_noise(path: Path, noise: float) -> Path:
    """The default bundle, with noise of so many standard deviations on its weights."""
    chance = np.random.default_rng(1)
    with safe_open(BUNDLE, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    for name, tensor in tensors.items():
        if name.startswith("network.") and tensor.ndim > 1 and tensor.dtype.kind == "f":
            added = chance.normal(0.0, noise * tensor.astype(np.float32).std(), tensor.shape)
            tensors[name] = (tensor + added).astype(tensor.dtype)
    manifest = json.loads(metadata["san_manifest"]) | {"version": "noisy"}
    save_file(tensors, path, metadata | {"san_manifest": json.dumps(manifest)})
    return path


def requests(budgets: Sequence[float]) -> Iterator[bytes]:
    """The examples in turn, from many clients."""
    chance, photos = random.Random(1), cycle([path.read_bytes() for path in PHOTOS])
    for budget, body in zip(budgets, photos, strict=False):
        address = f"10.0.0.{chance.randrange(_CLIENTS)}"
        yield post(f"/classify?budget_ms={budget:g}", body, {"X-Forwarded-For": address})


def kept(samples: Sequence[Sample]) -> tuple[int, int, int]:
    """(admitted, in time, refused), by what the service told each client."""
    told = [s.answer.json() for s in samples if s.status == 200 and s.answer is not None]
    return len(told), sum(t["budget"]["met"] for t in told), len(samples) - len(told)


def admin(service: OurService, path: str) -> tuple[int, dict[str, object]]:
    """A POST without a body."""
    with Client(service.port, timeout_s=_PATIENCE_S) as client:
        answer = client.send(post(path, b""))
        return answer.status, answer.json()


def give_up(service: OurService) -> None:
    """Drop the candidate."""
    with Client(service.port) as client:
        client.send(b"DELETE /admin/candidate HTTP/1.1\r\nHost: localhost\r\n\r\n")


class Traffic:
    """Steady arrivals in the background until it is told to stop; every sample is kept."""

    def __init__(self, service: OurService) -> None:
        self._service = service
        self._over = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        chance = random.Random(2)
        while not self._over.is_set():
            at, times = 0.0, []
            while (at := at + chance.expovariate(_RATE)) < 1.0:
                times.append(at)
            if times:
                sent = requests([_BUDGET_MS] * len(times))
                self.samples += open_loop(self._service.port, times, sent)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def not_worse(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether a share (of, in time) is no lower than another, by two standard errors."""
    n, m = before[0], after[0]
    share = (before[1] + after[1] + 1) / (n + m + 2)  # never quite 0 or 1: there is always an error
    error: float = (share * (1 - share) * (1 / n + 1 / m)) ** 0.5
    return after[1] / m >= before[1] / n - 2 * error


def during(traffic: Traffic) -> str:
    """What became of promises meanwhile."""
    admitted, in_time, refused = kept(traffic.samples)
    return f"Meanwhile {admitted} admitted, {in_time / admitted:.2%} in time, {refused} refused"


def shadow(service: OurService, file: str, rounds: int) -> bool:
    """The same arrivals with and without a candidate: whether as many promises are kept."""
    sums: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for number in range(rounds):
        for loaded in (False, True) if number % 2 == 0 else (True, False):
            if loaded:
                status, told = admin(service, f"/admin/candidate?file={file}")
                assert status == 200, told
            for name in TRACES:
                times = [a.at_ms / 1000 for a in scenario(name, 5.0, seed=number)]
                chance = random.Random(number)
                mixed = name.startswith("mixed")
                budgets = [chance.choice(MIXED) if mixed else _BUDGET_MS for _ in times]
                samples = open_loop(service.port, times, requests(budgets))
                admitted, in_time, refused = kept(samples)
                sums[loaded].update(admitted=admitted, in_time=in_time, refused=refused)
                service.await_idle(0.3)
            if loaded:
                give_up(service)
    for loaded, sum_ in sums.items():
        say(
            f"{'with a candidate' if loaded else 'without one'}: {sum_['admitted']} admitted, "
            f"{sum_['in_time'] / sum_['admitted']:.2%} in time, {sum_['refused']} refused"
        )
    without, with_it = ((s["admitted"], s["in_time"]) for s in sums.values())
    return not_worse(without, with_it)


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print what happened, and whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--noise", type=float, default=1.0)
    args = parser.parse_args()
    verdict = {}
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "served.safetensors"
        served.write_bytes(BUNDLE.read_bytes())
        noisy = with_noise(Path(folder) / "noisy.safetensors", args.noise)
        service = OurService(served, ("--trusted-proxies", "127.0.0.1/32"))
        with service:
            service.await_ready()
            if args.rounds:
                held = shadow(service, noisy.name, args.rounds)
                verdict["a candidate in the shadow costs no promise"] = held
            with Traffic(service) as traffic:
                time.sleep(10)
            alone = kept(traffic.samples)[:2]
            say(f"nothing beside it. {during(traffic)}")

            admin(service, f"/admin/candidate?file={noisy.name}")
            begun = time.monotonic()
            with Traffic(service) as traffic:
                while service.ask("/candidate")["pictures"] < 50:
                    assert time.monotonic() - begun < _PATIENCE_S
                    time.sleep(0.5)
            status, told = admin(service, "/admin/promote")
            took = time.monotonic() - begun
            say(f"promotion: {status} after {took:.0f} s; {told['detail']} {during(traffic)}")
            verdict["a worse candidate is refused"] = status == 409
            same = not_worse(alone, kept(traffic.samples)[:2])
            verdict["no promise is broken until it is refused"] = same
            give_up(service)

            admin(service, f"/admin/candidate?file={noisy.name}&canary=0.2")
            begun = time.monotonic()
            with Traffic(service) as traffic:
                while service.ask("/candidate")["stage"] == "canary":
                    assert time.monotonic() - begun < _PATIENCE_S
                    time.sleep(0.2)
                took = time.monotonic() - begun
                time.sleep(5)
            why = service.ask("/candidate")["events"][-1]
            versions = Counter(
                s.answer.json()["model_version"]
                for s in traffic.samples
                if s.status == 200 and s.answer is not None
            )
            say(
                f"canary: {why['result']} after {took:.0f} s; {why['why']} "
                f"{during(traffic)}; answers by version {dict(versions)}"
            )
            back = why["result"] == "rolled_back" and took <= _BACK_S
            verdict[f"its canary is taken back within {_BACK_S:.0f} s"] = back
            same = not_worse(alone, kept(traffic.samples)[:2])
            verdict["no promise is broken while the canary serves"] = same
    for claim, holds in verdict.items():
        say(f"{'held' if holds else 'NOT HELD'}: {claim}")
    return 0 if all(verdict.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
