"""Between the conversation and httpx."""

from __future__ import annotations

import time
from typing import Any

import httpx

from san_client.conversation import Reply, Send
from san_client.errors import ConnectionFailedError, DeadlineError


def monotonic_ms() -> float:
    """The clock of a real client."""
    return time.monotonic() * 1000


class TimeLeft(dict[str, float]):
    """Timeouts as httpx's transport reads them, each when its phase begins.

    So connecting, sending and waiting share one limit, where fixed ones would add up.
    """

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._end_s = time.monotonic() + timeout_s

    def get(self, key: str, default: Any = None) -> float:  # noqa: ARG002
        """What is left; zero would mean not to wait at all."""
        return max(self._end_s - time.monotonic(), 0.001)


def address(url: str) -> str:
    """An address with a scheme, whether or not the caller wrote one."""
    return url if "://" in url else f"http://{url}"


def request_of(step: Send) -> dict[str, Any]:
    """The arguments of httpx's `request`."""
    headers = {} if step.content_type is None else {"Content-Type": step.content_type}
    return {
        "method": step.method,
        "url": step.path,
        "params": dict(step.params),
        "content": step.content,
        "headers": headers,
        "extensions": {"timeout": TimeLeft(step.timeout_s)},
    }


def read_response(response: httpx.Response) -> Reply:
    """What came back."""
    return Reply(response.status_code, response.content, response.headers.get("retry-after"))


def trouble(error: httpx.HTTPError, step: Send) -> ConnectionFailedError | DeadlineError:
    """An error of the transport as one of ours."""
    if isinstance(error, httpx.TimeoutException):
        return too_late(step)
    return ConnectionFailedError(f"No answer came: {str(error).rstrip('.')}.")


def too_late(step: Send) -> DeadlineError:
    """The time for this attempt ran out."""
    return DeadlineError(f"No answer came within {step.timeout_s * 1000:.1f} ms.")
