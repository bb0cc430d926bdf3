from collections.abc import Callable

import pytest
import torch

from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

RESOLUTIONS = (96, 64, 48)


def disturb(network: ScaleAdaptiveNetwork, seed: int = 0) -> ScaleAdaptiveNetwork:
    """Make every private batch norm different, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for norm in network.batch_norms.values():
            for vector, low, high in (
                (norm.weight, 0.5, 1.5),
                (norm.bias, -0.2, 0.2),
                (norm.running_mean, -0.2, 0.2),
                (norm.running_var, 0.5, 2.0),
            ):
                vector.uniform_(low, high, generator=generator)
    return network.eval()


@pytest.fixture(scope="session")
def make_network() -> Callable[..., ScaleAdaptiveNetwork]:
    def make(architecture: str = "mobilenet_v2", **options: object) -> ScaleAdaptiveNetwork:
        torch.manual_seed(0)
        options.setdefault("resolutions", RESOLUTIONS)
        options.setdefault("num_classes", 7)
        return disturb(ScaleAdaptiveNetwork(NetworkConfig(architecture, **options)))  # type: ignore[arg-type]

    return make
