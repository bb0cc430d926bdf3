"""The least a Python HTTP server can do with an image: take the body, answer some JSON.

python -m benchmarks.bare_server PORT ANSWER_BYTES [ENGINE [BUNDLE]]

With an engine it also does our service's work, by our service's decoder and engine on one thread,
and nothing else: `?resolution=R&mode=M&precision=P` says which.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.own_parts import Parts
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode


def main() -> None:
    """Serve until stopped."""
    port, size = int(sys.argv[1]), int(sys.argv[2])
    answer = b'"' + b"x" * (size - 2) + b'"'
    engine, bundle = [*sys.argv[3:], "", ""][:2]
    parts = Parts(Path(bundle) if bundle else None, engine) if engine else None
    thread = ThreadPoolExecutor(1)

    @cache
    def work(resolution: str, mode: str, precision: str) -> Callable[[bytes], object]:
        assert parts is not None
        return parts.work(OperatingPoint(int(resolution), Mode(mode), cast(Precision, precision)))

    async def take(request: Request) -> Response:
        body = await request.body()
        if parts is not None:
            asked = request.query_params
            todo = work(asked["resolution"], asked["mode"], asked["precision"])
            await asyncio.get_running_loop().run_in_executor(thread, todo, body)
        return Response(answer, media_type="application/json")

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
