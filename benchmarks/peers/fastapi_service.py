"""FastAPI as a tutorial would write it: an upload, a global model, the answer as JSON."""

from contextlib import asynccontextmanager
from typing import Any

import network
import uvicorn
from fastapi import FastAPI, UploadFile

state: dict[str, network.Classifier] = {}


@asynccontextmanager
async def lifespan(_: FastAPI):
    state["classifier"] = network.Classifier()
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/classify")
async def classify(image: UploadFile) -> dict[str, Any]:
    data = await image.read()
    return {"predictions": state["classifier"].classify(data)}


if __name__ == "__main__":
    uvicorn.run(
        "fastapi_service:app",
        port=network.PORT,
        workers=network.WORKERS,
        access_log=False,
        timeout_worker_healthcheck=60,  # loading a network takes longer than the default
    )
