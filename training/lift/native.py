"""Which resolution a lifted network is native to, which are the pretrained network, which learn."""

from dataclasses import replace

import torch

from san_core.network.meta_learner import LinearMetaLearner, PiecewiseLinearMetaLearner
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.network.scale_encoding import encode
from training.errors import RecipeError


def native_resolution(network: ScaleAdaptiveNetwork) -> int:
    """Return the resolution a network was lifted at: the one its meta learner's origin encodes."""
    learner = network.meta_learner
    if isinstance(learner, LinearMetaLearner | PiecewiseLinearMetaLearner):
        for resolution in network.resolutions:
            if abs(encode(resolution) - learner.origin) < 1e-6:
                return resolution
    raise RecipeError(
        "This bundle was not lifted from a pretrained network, so no resolution is native and can "
        "teach the others. Make one with 'san lift', or train with labels (--data)."
    )


def pupils(network: ScaleAdaptiveNetwork) -> tuple[int, ...]:
    """Return the trained resolutions that the native one teaches, largest first."""
    native, kept = native_resolution(network), kept_from(network)
    return tuple(r for r in network.resolutions if r != native and (kept is None or r < kept))


def kept_from(network: ScaleAdaptiveNetwork) -> int | None:
    """Return from which resolution up the pretrained kernels stay; None: at the native one."""
    knots = network.config.knots
    return knots[0] if knots else network.config.native_from


@torch.no_grad()
def set_native_from(network: ScaleAdaptiveNetwork, lowest: int | None) -> None:
    """Let every resolution from `lowest` up be the pretrained network; None: the native alone."""
    learner = network.meta_learner
    native = network.batch_norm(native_resolution(network))
    assert isinstance(learner, LinearMetaLearner)
    network.config = replace(network.config, native_from=lowest)
    learner.native_from = lowest
    for resolution in network.resolutions:
        if lowest is not None and resolution >= lowest:
            network.batch_norm(resolution).load_state_dict(native.state_dict())
