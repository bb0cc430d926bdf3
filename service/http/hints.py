"""What to say to a path or a method that is not there: what was probably meant."""

from __future__ import annotations

import difflib

_ROUTES = (
    "/classify", "/resolutions", "/plan", "/feedback", "/healthz", "/readyz", "/version",
    "/metrics", "/docs", "/openapi.json", "/v2", "/admin/reload",
)  # fmt: skip
_OTHERS = ("predict", "infer", "invocations", "score", "inference", "image", "upload", "run")
"""What other servers call it."""


def hint(status: int, method: str, path: str) -> str | None:
    """A sentence for a framework's 404 or 405; None for anything else."""
    if status == 404:
        return f"There is nothing at {path[:80]}{_meant(path)} /docs lists the routes."
    if status == 405 and path == "/classify":
        return (
            f"/classify takes POST, not {method[:16]}: "
            "curl --data-binary @photo.jpg 'http://HOST/classify?budget_ms=20'."
        )
    if status == 405 and path == "/" and method in ("POST", "PUT"):
        return "The console is at /; POST an image to /classify."
    if status == 405:
        return f"{path[:80]} does not take {method[:16]}; see Allow, or /docs."
    return None


def _meant(path: str) -> str:
    if any(word in path.lower() for word in _OTHERS) and not path.startswith("/v2"):
        return "; POST an image to /classify."
    close = difflib.get_close_matches(path, _ROUTES, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else "."
