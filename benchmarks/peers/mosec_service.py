"""Mosec: one worker that decodes and runs, behind its Rust front."""

from __future__ import annotations

import json
import sys

import network
from mosec import Server, Worker


class Classify(Worker):
    """One image a request."""

    def __init__(self) -> None:
        self._classifier = network.Classifier()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: object) -> bytes:
        return json.dumps(data).encode()

    def forward(self, data: bytes) -> dict[str, object]:
        return {"predictions": self._classifier.classify(data)}


if __name__ == "__main__":
    sys.argv[1:] = ["--port", str(network.PORT), "--timeout", "10000"]
    server = Server()
    server.append_worker(Classify, num=network.WORKERS)
    server.run()
