"""Two thousand damaged images: each is classified or refused, and the service goes on."""

from __future__ import annotations

import json
import struct
from collections import Counter

import pytest

from tests.fuzz.mutations import mutated, originals

# Pillow warns of damage it can live with.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

ANSWERED_OR_REFUSED = {200, 400, 413, 415}


def test_the_originals_are_all_classified(running):
    with running.client() as client:
        for image in originals():
            response = client.post("/classify", params={"resolution": 32}, content=image)
            assert response.status_code == 200, response.text


def test_no_damaged_image_breaks_the_service(running):
    seen: Counter[int] = Counter()
    with running.client() as client:
        for number, image in enumerate(mutated(2000, seed=1)):
            response = client.post("/classify", params={"resolution": 32}, content=image)
            seen[response.status_code] += 1
            assert response.status_code in ANSWERED_OR_REFUSED, (number, response.text)
            if response.status_code != 200:
                assert response.json()["detail"], number
        healthy = client.post("/classify", content=originals()[0])
    # Both must have happened, or the mutations are too mild or too harsh to prove anything.
    assert seen[200] > 200
    assert seen[400] > 200
    assert healthy.status_code == 200
    assert running.service.admission.inside == 0
    assert len(running.service.machinery.schedule) == 0


def test_nor_does_a_damaged_inference_request(running):
    intact = originals()[0]
    seen: Counter[int] = Counter()
    with running.client() as client:
        for image in mutated(100, seed=2):
            pair = [intact, image]
            raw = b"".join(struct.pack("<I", len(file)) + file for file in pair)
            tensor = {
                "name": "image",
                "datatype": "BYTES",
                "shape": [len(pair)],
                "parameters": {"binary_data_size": len(raw)},
            }
            text = json.dumps({"inputs": [tensor], "parameters": {"resolution": 32}}).encode()
            response = client.post(
                "/v2/models/tiny/infer",
                content=text + raw,
                headers={"Inference-Header-Content-Length": str(len(text))},
            )
            seen[response.status_code] += 1
            assert response.status_code in ANSWERED_OR_REFUSED, response.text
            assert response.status_code == 200 or response.json()["error"]
    assert seen[200] > 5
    assert seen[400] > 5
    assert running.service.admission.inside == 0
