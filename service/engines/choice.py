"""Which engine runs a bundle's networks: on a GPU, with OpenVINO, or with torch on the CPU."""

from __future__ import annotations

import importlib
import logging
import os

from san_core.bundle import Bundle
from san_core.errors import SanError
from service.engines.base import Engine
from service.errors import EngineUnavailableError
from service.runtime.cores import available_cores, plan_cores
from service.settings import Settings

logger = logging.getLogger(__name__)

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""What a driver shows where there is a GPU: NVIDIA's, Windows' for Linux, AMD's."""


def wants_gpu(settings: Settings) -> bool:
    """Whether a GPU is to be used: it is named, or there is one and nothing speaks against it."""
    if settings.device == "auto":
        if settings.engine == "openvino" or not any(map(os.path.exists, _GPU_DEVICES)):
            return False  # and torch, which takes seconds to import, is not asked
        return _torch_sees_gpu()
    return settings.device.startswith("cuda")


def _torch_sees_gpu() -> bool:
    """Whether torch can use the GPU that is there; warns of the reason if not."""
    try:
        from service.engines.torch_engine import resolve_device

        if resolve_device("auto").type != "cuda":
            resolve_device("cuda")  # raises, with the reason
    except (ImportError, EngineUnavailableError) as error:
        logger.warning("there is a GPU, but the CPU serves: %s", error)
        return False
    return True


def choose_engine(settings: Settings, bundle: Bundle) -> Engine:
    """OpenVINO where it works and nothing else was asked for; torch elsewhere, and on a GPU."""
    cores = max(1, available_cores() // settings.workers)

    def threads(engine: str) -> int:
        return plan_cores(cores, engine, engine_threads=settings.engine_threads).engine

    gpu = wants_gpu(settings)
    if settings.engine != "torch" and not gpu:
        try:
            module = importlib.import_module("service.engines.openvino.engine")
            engine: Engine = module.OpenVinoEngine(
                bundle,
                threads=threads("openvino"),
                max_batch=settings.max_batch,
                device="cpu",
                bf16=settings.bf16,
                cache_dir=settings.cache_dir,
            )
            return engine
        except (ImportError, EngineUnavailableError) as error:
            if settings.engine == "openvino":
                raise EngineUnavailableError(
                    f"The OpenVINO engine cannot run here: {error}"
                ) from error
            logger.info("OpenVINO cannot run here (%s); taking torch", error)
    try:
        if gpu:
            return _on_gpu(settings, bundle)
        from service.engines.torch_engine import TorchEngine
    except ImportError as error:
        raise EngineUnavailableError(
            f"The torch engine needs {error.name or 'torch'}: pip install 'san-serve[torch]'."
        ) from error
    return TorchEngine(bundle, threads=threads("torch"), max_batch=settings.max_batch, device="cpu")


def _on_gpu(settings: Settings, bundle: Bundle) -> Engine:
    """CUDA graphs; on the CPU if the GPU was not named and cannot be used: full, or broken."""
    from service.engines.cuda.engine import CudaEngine

    try:
        return CudaEngine(bundle, threads=1, max_batch=settings.max_batch, device=settings.device)
    except (RuntimeError, SanError) as error:
        if settings.device != "auto":
            raise
        logger.warning("the GPU cannot be used (%s); running on the CPU", error)
        return choose_engine(settings.model_copy(update={"device": "cpu"}), bundle)
