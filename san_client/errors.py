"""Every error of the client.

SanClientError
├── ConnectionFailedError      no answer came; another attempt may do
├── DeadlineError              the time allowed ran out on this side
├── UnexpectedAnswerError      whatever answered is not san-serve
└── ProblemError               the service said no: status, title, detail, members
    ├── BadImageError          400, 415
    ├── UnauthorisedError      401, 403
    ├── NotFoundError          404
    ├── ConflictError          409  feedback was given before, or for a replaced bundle
    ├── TooLargeError          413
    ├── ParameterError         422
    │   └── ImpossibleBudgetError   smallest_budget_ms, expected_accuracy
    ├── OverloadedError        429  retry_after_ms
    ├── UnavailableError       503  retry_after_ms
    └── ServerFailedError      any other 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class SanClientError(Exception):
    """Root of the client's errors."""

    temporary: ClassVar[bool] = False
    """Whether the same request may succeed a little later."""

    @property
    def retry_after_ms(self) -> float | None:
        """When the service says to come back; None if it did not."""
        return None


class ConnectionFailedError(SanClientError):
    """No answer came."""

    temporary = True


class DeadlineError(SanClientError):
    """The time allowed ran out on this side."""


class UnexpectedAnswerError(SanClientError):
    """Whatever answered is not san-serve."""


class ProblemError(SanClientError):
    """The service said no, and why."""

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after_s: float | None
    ) -> None:
        self.status = status
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail") or problem.get("error") or self.title)
        self.request_id: str | None = problem.get("request_id")
        self.members = dict(problem)
        self._retry_after_s = retry_after_s
        super().__init__(f"{self.detail} (HTTP {status})")

    @property
    def retry_after_ms(self) -> float | None:
        """In milliseconds where the service is that exact, else from the header."""
        exact = self.members.get("retry_after_ms")
        if isinstance(exact, int | float):
            return float(exact)
        return None if self._retry_after_s is None else self._retry_after_s * 1000


class BadImageError(ProblemError):
    """Not an image, a broken one, or a format that is not decoded."""


class UnauthorisedError(ProblemError):
    """No API key, or one that does not allow this route."""


class NotFoundError(ProblemError):
    """Nothing there, or a request that is not remembered."""


class ConflictError(ProblemError):
    """Feedback was given before, or is about an answer of a bundle that was replaced since."""


class TooLargeError(ProblemError):
    """Too many bytes, pixels or frames."""


class ParameterError(ProblemError):
    """A parameter cannot be used."""


class ImpossibleBudgetError(ParameterError):
    """No operating point is that fast on the service's host."""

    @property
    def smallest_budget_ms(self) -> float:
        """The smallest budget that would work."""
        return float(self.members["smallest_budget_ms"])

    @property
    def expected_accuracy(self) -> float | None:
        """The accuracy that budget buys; None if the bundle was never evaluated."""
        accuracy = self.members["expected_accuracy"]
        return None if accuracy is None else float(accuracy)


class OverloadedError(ProblemError):
    """The load leaves no time for this budget."""

    temporary = True


class UnavailableError(ProblemError):
    """Not ready, draining, or expired in the queue."""

    temporary = True


class ServerFailedError(ProblemError):
    """The service failed."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    400: BadImageError,
    401: UnauthorisedError,
    403: UnauthorisedError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    415: BadImageError,
    422: ParameterError,
    429: OverloadedError,
    503: UnavailableError,
}


def problem_error(
    status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
) -> ProblemError:
    """The error for a status and its problem+json."""
    kind = _BY_STATUS.get(status, ServerFailedError if status >= 500 else ProblemError)
    if kind is ParameterError and "smallest_budget_ms" in problem:
        kind = ImpossibleBudgetError
    return kind(status, problem, retry_after_s)
