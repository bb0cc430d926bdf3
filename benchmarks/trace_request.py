"""How much code a warm `POST /classify` runs through: calls, functions and modules of ours.

    python -m benchmarks.trace_request [--bundle FILE]

Counts named Python functions of `service` and `san_core` on every thread, from the request's first
byte to the end of what follows its answer. `--functions` lists them with their calls.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.driving.photo import photo
from service.app import make_app, make_service
from service.http.connection.server import Server, server_config
from service.settings import Settings

ROOT = Path(__file__).parents[1]
WARM_UP = 30
ROUNDS = 5
SETTLED_S = 0.05


class Trace:
    """Counts calls while it is switched on."""

    def __init__(self) -> None:
        self.on = False
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.on or event != "call":
            return
        code = frame.f_code
        if code.co_name.startswith("<"):  # a comprehension, a lambda, a module
            return
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ("service", "san_core"):
            self.calls[str(path.relative_to(ROOT)), code.co_qualname] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--functions", action="store_true", help="list every function")
    args = parser.parse_args()
    trace = Trace()
    threading.setprofile(trace)
    settings = Settings(bundle=args.bundle, port=0, agreement_fraction=0, access_log=False)
    service = make_service(settings)
    server = Server(server_config(make_app(settings, service), settings), service)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (service.is_ready or service.failure):
        time.sleep(0.1)
    if service.failure:
        sys.exit(service.failure)
    while not (service.deployment and service.deployment.is_complete):
        time.sleep(0.1)  # else what is built behind requests would count
    port = server.servers[0].sockets[0].getsockname()[1]
    connection = http.client.HTTPConnection("127.0.0.1", port)
    image = photo()

    def classify() -> None:
        connection.request("POST", "/classify?budget_ms=1000", image)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    for _ in range(WARM_UP):
        classify()
    found = []
    for _ in range(ROUNDS):
        time.sleep(SETTLED_S)
        trace.calls.clear()
        trace.on = True
        classify()
        time.sleep(SETTLED_S)
        trace.on = False
        found.append(Counter(trace.calls))
    server.should_exit = True
    thread.join(timeout=10)
    typical = sorted(found, key=Counter.total)[ROUNDS // 2]
    modules = {path for path, _ in typical}
    print(f"{typical.total()} calls of {len(typical)} functions in {len(modules)} modules")
    if args.functions:
        for (path, name), calls in sorted(typical.items()):
            print(f"{calls:5d}  {path}:{name}")


if __name__ == "__main__":
    main()
