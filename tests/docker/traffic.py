"""Traffic that moves every metric: long and short budgets, pins, broken images, feedback."""

from __future__ import annotations

import io
import json
import random
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image


def picture(seed: int, size: int = 320) -> bytes:
    """A JPEG with something in it."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(coarse).resize((size, size * 3 // 4), Image.Resampling.BICUBIC).save(
        out, "JPEG"
    )
    return out.getvalue()


def post(
    url: str, body: bytes, kind: str = "image/jpeg", key: str = ""
) -> tuple[int, dict[str, Any]]:
    """Status and JSON; 0 if nobody answers."""
    span = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
    headers = {"Content-Type": kind, "traceparent": span} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except (OSError, ValueError):
        return 0, {}


class Traffic:
    """Sends requests to a service for a while and counts the answers."""

    def __init__(self, url: str, pictures: list[bytes], seed: int = 0) -> None:
        self._url = url
        self._pictures = pictures
        self._chance = random.Random(seed)
        self._truth: dict[int, str] = {}
        self._budgets = self._read_budgets()
        self._lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.resolutions: Counter[int] = Counter()
        self.feedback = 0

    def _read_budgets(self) -> list[float]:
        """Budgets between too short and ample, by what this host measured for itself."""
        with urllib.request.urlopen(f"{self._url}/resolutions", timeout=60) as answer:
            points = json.loads(answer.read())["operating_points"]
        found = sorted(p["smallest_budget_ms"] for p in points if p["frontier"])
        return [found[0] * 0.5, found[0] * 1.5, found[len(found) // 2] * 1.2, found[-1] * 5]

    def learn_truth(self) -> None:
        """What the best operating point says is taken for the truth about a picture."""
        for i, body in enumerate(self._pictures):
            status, answer = post(f"{self._url}/classify?budget_ms=60000", body)
            assert status == 200, answer
            self._truth[i] = answer["predictions"][0]["label"]

    def one(self, query: str) -> int:
        """Classify some picture, then say what it was."""
        with self._lock:
            i = self._chance.randrange(len(self._pictures))
        status, answer = post(f"{self._url}/classify?{query}", self._pictures[i])
        with self._lock:
            self.statuses[status] += 1
            if status == 200:
                self.resolutions[answer["resolution"]] += 1
        if status == 200 and i in self._truth:
            given = {"request_id": answer["request_id"], "label": self._truth[i]}
            told, _ = post(f"{self._url}/feedback", json.dumps(given).encode(), "application/json")
            with self._lock:
                self.feedback += told == 200
        return status

    def each_kind(self) -> None:
        """What chance might leave out: a refusal, a hopeless budget, a cold pin, a broken image."""
        for query in ("budget_ms=0.01&on_miss=refuse", "budget_ms=0.01", "resolution=100"):
            self.one(query)
        post(f"{self._url}/classify", b"not an image")

    def steady(self, seconds: float, clients: int = 3) -> None:
        """Budgets of all lengths, some pins to resolutions nobody has warmed."""
        end = time.monotonic() + seconds

        def client(number: int) -> None:
            chance = random.Random(number)
            while time.monotonic() < end:
                pick = chance.random()
                if pick < 0.1:
                    self.one(f"resolution={chance.randrange(64, 257, 4)}")
                elif pick < 0.13:
                    self.one("budget_ms=0.01&on_miss=refuse")
                elif pick < 0.16:
                    self.one("budget_ms=0.01")
                elif pick < 0.18:
                    post(f"{self._url}/classify", b"not an image")
                else:
                    budget = chance.choice([None, *self._budgets])
                    self.one("" if budget is None else f"budget_ms={budget:.1f}")

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))

    def burst(self, requests: int = 400, clients: int = 48) -> None:
        """More at once than the best operating point can carry within their budgets."""
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(self.one, [f"budget_ms={self._budgets[-1] / 2:.1f}"] * requests))
