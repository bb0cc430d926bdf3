"""The least a Python HTTP server can do with an image: take the body, answer some JSON.

python -m benchmarks.servers.bare_server PORT ANSWER_BYTES [ENGINE [BUNDLE]]

With an engine it also does our service's work, by our service's decoder and engine on one thread,
and nothing else: `?resolution=R&mode=M&precision=P` says which.
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.servers.own_parts import Parts
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from service.engines.base import RunnableNetwork


def main() -> None:
    """Serve until stopped."""
    port, size = int(sys.argv[1]), int(sys.argv[2])
    answer = b'"' + b"x" * (size - 2) + b'"'
    engine, bundle = [*sys.argv[3:], "", ""][:2]
    parts = Parts(Path(bundle) if bundle else None, engine) if engine else None
    thread = ThreadPoolExecutor(1)

    @cache
    def network(resolution: int, mode: str, precision: str) -> RunnableNetwork:
        assert parts is not None
        return parts.network(OperatingPoint(resolution, Mode(mode), cast(Precision, precision)))

    def work(body: bytes, resolution: int, mode: str, precision: str) -> dict[str, str]:
        """Decode and run, and tell how long that took as our service does."""
        assert parts is not None
        runnable, begun = network(resolution, mode, precision), time.perf_counter()
        pixels = parts.decode(body, resolution)
        decoded = time.perf_counter()
        runnable.run(pixels)
        took = 1e3 * (decoded - begun), 1e3 * (time.perf_counter() - decoded)
        return {"server-timing": "decode;dur={:.3f}, forward;dur={:.3f}".format(*took)}

    async def take(request: Request) -> Response:
        body, headers = await request.body(), {}
        if parts is not None:
            asked = request.query_params
            todo = int(asked["resolution"]), asked["mode"], asked["precision"]
            loop = asyncio.get_running_loop()
            headers = await loop.run_in_executor(thread, work, body, *todo)
        return Response(answer, headers=headers, media_type="application/json")

    app = Starlette(routes=[Route("/classify", take, methods=["POST"])])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="error",
        timeout_keep_alive=75,  # it is asked in turns with others
    )


if __name__ == "__main__":
    main()
