"""BentoML: one service class, its image as the raw body, as many workers as asked for."""

from typing import Annotated, Any

import bentoml
import network
from bentoml.validators import ContentType


@bentoml.service(
    name="classify",
    workers=network.WORKERS,
    threads=1,
    traffic={"timeout": 60},
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
)
class Classify:
    def __init__(self) -> None:
        self.classifier = network.Classifier()

    @bentoml.api(route="/classify")
    def classify(self, image: Annotated[bytes, ContentType("image/jpeg")], /) -> dict[str, Any]:
        return {"predictions": self.classifier.classify(image)}
