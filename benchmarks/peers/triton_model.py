"""Triton's Python backend, as its documentation writes a model: bytes in, five classes out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# The backend's interpreter looks at no variable of Python's.
sys.path[:0] = os.environ["PEER_PATH"].split(os.pathsep)

import network  # noqa: E402
import numpy as np  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402


class TritonPythonModel:
    """One instance."""

    def initialize(self, _: dict[str, Any]) -> None:
        """Load the network."""
        self._classifier = network.Classifier()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        image = pb_utils.get_input_tensor_by_name(request, "image").as_numpy().reshape(-1)[0]
        try:
            found = json.dumps(self._classifier.classify(image)).encode()
        except Exception as error:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("predictions", np.array([found], np.object_))]
        )
