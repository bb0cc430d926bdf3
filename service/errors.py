"""Every error of the service. Those that a client can meet carry their HTTP status on the class.

SanError                             san_core
├── ImageError …                     san_core; see `STATUS_OF_CORE` below
├── SettingsError                    at start: a setting cannot be used
│   └── KeyFileError                 at start: a file of API keys cannot be used
├── EngineUnavailableError           at start: the engine cannot run on this host
└── ServiceError                     500
    ├── MalformedHttpError           400  bytes that are no request; the connection is closed
    ├── TensorError                  400  an inference request that cannot be read
    ├── UnauthorisedError            401  no API key, or a wrong one
    ├── ForbiddenError               403  the key does not allow this route
    ├── UnknownFeedbackError         404  feedback for a request that is not remembered
    ├── NotCachedError               404  nothing in the weight cache to remove
    ├── UnknownModelError            404  an inference request for another model
    ├── SlowClientError              408  the body did not arrive in time
    ├── RepeatedFeedbackError        409  feedback was given before
    ├── OutdatedFeedbackError        409  feedback for an answer of a bundle that was replaced
    ├── ReloadError                  409  the new bundle cannot be served; the old one stays
    ├── PromotionError               409  the candidate is worse than the bounds allow
    ├── NoCandidateError             404  there is no candidate
    ├── BodyTooLargeError            413
    ├── CompressedBodyError          415  a Content-Encoding
    ├── ParameterError               422  a parameter is missing, unknown or out of range
    ├── ImpossibleBudgetError        422  no point is that fast, and the client said refuse
    ├── HeadersTooLargeError         431  too many headers, or too large ones
    ├── OverloadedError              429  Retry-After: the load leaves no time for this budget
    ├── ClientGoneError              499  the client is gone; never sent
    ├── ExpiredError                 429  Retry-After: admitted, but too late when its turn came
    ├── NotFiniteError               500  a network computed something that is not a number
    ├── NotReadyError                503  Retry-After: still measuring this host
    ├── EngineFullError              503  Retry-After: the engine's device is out of memory
    ├── EngineLostError              503  Retry-After: the engine's device is gone, until a restart
    ├── DrainingError                503  Retry-After: shutting down
    └── HttpError                    404, 405 …: what the framework found wrong

One middleware, `Problems`, turns each of them and anything unforeseen into RFC 9457 problem+json.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, ClassVar

import orjson

from san_core.errors import (
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
    ResolutionError,
    SanError,
    UnsupportedFormatError,
)

PROBLEM_JSON = "application/problem+json"

STATUS_OF_CORE: dict[type[SanError], tuple[int, str]] = {
    ImageTooLargeError: (413, "The image is too large"),
    UnsupportedFormatError: (415, "This image format is not decoded here"),
    NotAnImageError: (400, "This is not an image"),
    ImageError: (400, "The image is damaged"),
    ResolutionError: (422, "This resolution cannot be used"),
}
"""san_core knows no HTTP; the first class here that an error is an instance of gives both."""


class SettingsError(SanError):
    """A setting cannot be used."""


class KeyFileError(SettingsError):
    """A file of API keys cannot be used."""


class EngineUnavailableError(SanError):
    """The engine cannot run here: library missing, instruction set broken, no such device."""


class ServiceError(SanError):
    """Root of the service's errors."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "The service failed"

    def __init_subclass__(cls, status: int | None = None, title: str | None = None) -> None:
        """Take both from the class statement: `class X(ServiceError, status=404, title="…")`."""
        cls.status = cls.status if status is None else status
        cls.title = cls.title if title is None else title

    def members(self) -> dict[str, Any]:
        """Facts a program can act on, beside the sentence."""
        return {}

    def headers(self) -> dict[str, str]:
        """Headers the answer carries."""
        return {}


class MalformedHttpError(ServiceError, status=400, title="Not a request"):
    """Bytes that are no request."""


class HeadersTooLargeError(ServiceError, status=431, title="The headers are too large"):
    """Too many headers, or too large ones."""


class TensorError(ServiceError, status=400, title="The inference request cannot be read"):
    """An inference request that cannot be read."""


class UnauthorisedError(ServiceError, status=401, title="An API key is needed"):
    """No API key, or a wrong one."""

    def headers(self) -> dict[str, str]:
        """Name the scheme, as RFC 9110 asks of every 401."""
        return {"WWW-Authenticate": 'Bearer realm="san-serve"'}


class ForbiddenError(ServiceError, status=403, title="Not allowed"):
    """The caller may not do this."""


class UnknownFeedbackError(ServiceError, status=404, title="Unknown request"):
    """Feedback for a request that is not remembered."""


class NotCachedError(ServiceError, status=404, title="Not in the weight cache"):
    """Nothing to remove."""


class UnknownModelError(ServiceError, status=404, title="Unknown model"):
    """An inference request for a model, or a version of it, that is not served here."""


class SlowClientError(ServiceError, status=408, title="The body came too slowly"):
    """The body did not arrive in time."""


class RepeatedFeedbackError(ServiceError, status=409, title="Feedback was already given"):
    """Feedback was given before."""


class OutdatedFeedbackError(ServiceError, status=409, title="Another bundle gave that answer"):
    """Feedback for an answer of a bundle that was replaced."""


class ReloadError(ServiceError, status=409, title="The bundle was not swapped"):
    """The new bundle cannot be served; the old one stays."""


class NoCandidateError(ServiceError, status=404, title="No candidate"):
    """No bundle is a candidate."""


class PromotionError(ServiceError, status=409, title="Not promoted"):
    """The candidate is worse than the bounds allow, or not known well enough."""

    def __init__(self, message: str, reasons: list[str]) -> None:
        super().__init__(message)
        self._reasons = reasons

    def members(self) -> dict[str, Any]:
        """Each reason on its own."""
        return {"reasons": self._reasons}


class BodyTooLargeError(ServiceError, status=413, title="The body is too large"):
    """More bytes than allowed."""


class CompressedBodyError(ServiceError, status=415, title="The body is compressed"):
    """Images do not get smaller by compressing them again, and bombs get larger."""


class ParameterError(ServiceError, status=422, title="A parameter cannot be used"):
    """A parameter is missing, unknown or out of range."""

    def __init__(self, detail: str, parameter: str | None = None) -> None:
        super().__init__(detail)
        self.parameter = parameter

    def members(self) -> dict[str, Any]:
        """Name the parameter."""
        return {"parameter": self.parameter} if self.parameter else {}


class ImpossibleBudgetError(ServiceError, status=422, title="The budget cannot be met"):
    """No operating point is that fast on this host, and the client said to refuse."""

    def __init__(
        self, detail: str, smallest_budget_ms: float, expected_accuracy: float | None
    ) -> None:
        super().__init__(detail)
        self.smallest_budget_ms = smallest_budget_ms
        self.expected_accuracy = expected_accuracy

    def members(self) -> dict[str, Any]:
        """Say what would work."""
        return {
            "smallest_budget_ms": math.ceil(self.smallest_budget_ms * 10) / 10,
            "expected_accuracy": self.expected_accuracy,
        }


class _RetryError(ServiceError):
    """Something that passes: the answer says when to try again."""

    def __init__(self, detail: str, retry_after_ms: float = 1000.0) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms

    def members(self) -> dict[str, Any]:
        """Say it in milliseconds too: the header only has whole seconds."""
        return {"retry_after_ms": math.ceil(self.retry_after_ms)}

    def headers(self) -> dict[str, str]:
        """Whole seconds, at least one (RFC 9110)."""
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_ms / 1000)))}


class ClientGoneError(ServiceError, status=499, title="The client is gone"):
    """The client closed the connection before its request was complete."""


class OverloadedError(_RetryError, status=429, title="Overloaded"):
    """The load leaves no time for this budget."""

    def __init__(self, detail: str, retry_after_ms: float = 1000.0, *, own: bool = False) -> None:
        super().__init__(detail, retry_after_ms)
        self.own = own
        """Whether this client alone is the cause."""


class ExpiredError(_RetryError, status=429, title="The deadline passed in the queue"):
    """Admitted, but its deadline passed while it was queued."""


class NotReadyError(_RetryError, status=503, title="Not ready"):
    """The service is starting: it loads its bundle or measures this host."""

    def __init__(
        self,
        detail: str,
        retry_after_ms: float = 1000.0,
        progress: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail, retry_after_ms)
        self.progress = progress

    def members(self) -> dict[str, Any]:
        """Say how far the start is, if it is one that the client waits for."""
        return super().members() | ({"progress": self.progress} if self.progress else {})


class NotFiniteError(ServiceError, title="The network failed"):
    """A network computed something that is not a number."""


class EngineFullError(_RetryError, status=503, title="Out of device memory"):
    """The engine's device is out of memory."""


class EngineLostError(_RetryError, status=503, title="The device is lost"):
    """The engine's device is gone: only a new process can use it again."""


class DrainingError(_RetryError, status=503, title="Draining"):
    """The service is shutting down."""


class HttpError(ServiceError):
    """An error of the framework: an unknown path, a method that is not there."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str], sentence: str | None = None
    ) -> None:
        super().__init__(sentence or f"{detail.rstrip('.')}.")
        self.status = status  # type: ignore[misc]
        self.title = detail  # type: ignore[misc]
        self._headers = headers

    def headers(self) -> dict[str, str]:
        """What the framework adds: the allowed methods, say."""
        return self._headers


def slug(kind: type[BaseException]) -> str:
    """``OverloadedError`` -> ``overloaded``: the name in `type`, in logs and in metrics."""
    return _hyphenated(kind.__name__.removesuffix("Error"))


@cache
def _hyphenated(name: str) -> str:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.removeprefix("-")


def status_and_slug(error: BaseException) -> tuple[int, str]:
    """What an error is answered and counted as."""
    if isinstance(error, ServiceError):
        return error.status, slug(type(error))
    if isinstance(error, SanError) and (found := _of_core(error)):
        return found[0], slug(type(error))
    return ServiceError.status, slug(ServiceError)


class Problem:
    """An error as it goes over the wire: status, headers and the problem+json body."""

    def __init__(self, error: BaseException, request_id: str | None) -> None:
        members: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.status, self.slug = status_and_slug(error)
        title, detail = ServiceError.title, str(error)
        if isinstance(error, ServiceError):
            title = error.title
            members, self.headers = error.members(), error.headers()
        elif isinstance(error, SanError) and (found := _of_core(error)):
            title = found[1]
        else:
            # What went wrong inside is for the log; the client gets an id to quote.
            detail = "Something unforeseen went wrong; the log has it under this request id."
        self.body = orjson.dumps(
            {
                "type": f"urn:san-serve:problem:{self.slug}",
                "title": title,
                "status": self.status,
                "detail": detail,
                "request_id": request_id,
                "error": detail,
                **members,
            }
        )


def _of_core(error: SanError) -> tuple[int, str] | None:
    return next((found for kind, found in STATUS_OF_CORE.items() if isinstance(error, kind)), None)
