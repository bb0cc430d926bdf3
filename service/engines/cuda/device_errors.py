"""What a device's errors mean: it is full for now, or it is lost for good."""

from __future__ import annotations

import torch

from service.errors import EngineFullError, EngineLostError

_LOST = ("CUDA error", "CUDA driver error", "cuDNN error", "CUDNN", "CUBLAS", "cuBLAS")
_FULL = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
_CAPTURE_CODES = range(900, 910)
"""cudaErrorStreamCapture…: what cannot be captured fails, and nothing else is harmed."""


def is_full(error: BaseException) -> bool:
    """Whether the device is out of memory."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL)


def is_lost(error: BaseException) -> bool:
    """Whether no later call can succeed: CUDA's errors stay until the process ends.

    torch raises AcceleratorError for the runtime's errors, a plain RuntimeError for the libraries'.
    """
    if not isinstance(error, RuntimeError) or is_full(error):
        return False
    if getattr(error, "error_code", None) in _CAPTURE_CODES or "captur" in str(error):
        return False
    return isinstance(error, torch.AcceleratorError) or str(error).startswith(_LOST)


def translated(error: BaseException) -> BaseException:
    """An error of a device as the service tells it; any other as it is."""
    reason = str(error).partition("\n")[0]
    if is_full(error):
        return EngineFullError(f"The device has no memory left for this: {reason}.")
    if is_lost(error):
        return EngineLostError(f"The device is lost and the service restarts: {reason}.")
    return error
