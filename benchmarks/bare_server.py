"""The least a Python HTTP server can do with an image: take the body, answer some JSON.

python -m benchmarks.bare_server PORT ANSWER_BYTES
"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def main() -> None:
    """Serve until stopped."""
    port, size = int(sys.argv[1]), int(sys.argv[2])
    answer = b'"' + b"x" * (size - 2) + b'"'

    async def take(request: Request) -> Response:
        await request.body()
        return Response(answer, media_type="application/json")

    app = Starlette(routes=[Route("/classify", take, methods=["POST"])])
    uvicorn.run(
        app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", log_level="error"
    )


if __name__ == "__main__":
    main()
