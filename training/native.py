"""Which resolution a lifted network is native to."""

from san_core.meta_learner import LinearMetaLearner
from san_core.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.scale_encoding import encode
from training.errors import RecipeError


def native_resolution(network: ScaleAdaptiveNetwork) -> int:
    """Return the resolution a network was lifted at: the one its meta learner's origin encodes."""
    learner = network.meta_learner
    if isinstance(learner, LinearMetaLearner):
        for resolution in network.resolutions:
            if abs(encode(resolution) - learner.origin) < 1e-6:
                return resolution
    raise RecipeError(
        "This bundle was not lifted from a pretrained network, so no resolution is native and can "
        "teach the others. Make one with 'san lift', or train with labels (--data)."
    )
