"""Ray Serve: one deployment, the image as the raw body, a replica per worker."""

import signal
import threading
from typing import Any

import network
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from starlette.requests import Request


@serve.deployment(
    num_replicas=network.WORKERS,
    max_ongoing_requests=64,
    ray_actor_options={"num_cpus": 0.5},
)
class Classify:
    def __init__(self) -> None:
        self.classifier = network.Classifier()

    async def __call__(self, request: Request) -> dict[str, Any]:
        return {"predictions": self.classifier.classify(await request.body())}


if __name__ == "__main__":
    ray.init(
        "local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1", log_to_driver=False,
    )  # fmt: skip
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=network.PORT))
    serve.run(Classify.bind(), route_prefix="/classify")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    serve.shutdown()
    ray.shutdown()
