"""MLServer: a custom runtime whose custom handler takes the image as the raw body."""

from typing import Annotated, Any

import network
from fastapi import Body
from mlserver import MLModel
from mlserver.handlers import custom_handler


class Classify(MLModel):
    async def load(self) -> bool:
        self.classifier = network.Classifier()
        return True

    @custom_handler(rest_path="/classify")
    async def classify(
        self, image: Annotated[bytes, Body(media_type="image/jpeg")]
    ) -> dict[str, Any]:
        return {"predictions": self.classifier.classify(image)}
