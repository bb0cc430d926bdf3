"""A typed client for san-serve: budgets, retries that respect the deadline, blocking and async.

from san_client import Client

with Client("http://127.0.0.1:8000") as client:
    answer = client.classify("photo.jpg", budget_ms=20)
    print(answer.best.label, answer.resolution, answer.budget.met)
"""

from san_client.answers import (
    Accuracy,
    Answer,
    Budget,
    Judgement,
    Latency,
    OperatingPoint,
    Prediction,
    Timing,
    Version,
)

try:
    from san_client.async_client import AsyncClient
except ModuleNotFoundError as error:
    if error.name not in ("httpx", "anyio"):
        raise
    raise ModuleNotFoundError(
        f"san_client needs {error.name}: pip install httpx anyio", name=error.name
    ) from None
from san_client.calls import Terms
from san_client.client import Client
from san_client.errors import (
    BadImageError,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    ImpossibleBudgetError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    ProblemError,
    SanClientError,
    ServerFailedError,
    TooLargeError,
    UnauthorisedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from san_client.retries import Retries

__all__ = [
    "Accuracy",
    "Answer",
    "AsyncClient",
    "BadImageError",
    "Budget",
    "Client",
    "ConflictError",
    "ConnectionFailedError",
    "DeadlineError",
    "ImpossibleBudgetError",
    "Judgement",
    "Latency",
    "NotFoundError",
    "OperatingPoint",
    "OverloadedError",
    "ParameterError",
    "Prediction",
    "ProblemError",
    "Retries",
    "SanClientError",
    "ServerFailedError",
    "Terms",
    "Timing",
    "TooLargeError",
    "UnauthorisedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "Version",
]
