import torch

from san_core.bundle import load
from san_core.quantization import Range, to_extras
from service.latency.costs import count_costs


def test_int8_weighs_a_byte_where_a_layer_has_a_range(tiny_bundle):
    bundle = load(tiny_bundle)
    layers = [
        name
        for name, module in bundle.network.skeleton.named_modules()
        if isinstance(module, torch.nn.Conv2d)
    ]
    for resolution in bundle.network.resolutions:
        bundle.extras |= to_extras(resolution, {name: Range(1.0, False) for name in layers})
    found = count_costs(bundle, [(64, "float"), (64, "int8"), (48, "int8")])
    convolutions = sum(
        bundle.network.skeleton.get_parameter(f"{name}.weight").numel() for name in layers
    )
    saved = found[64, "float"].weight_bytes - found[64, "int8"].weight_bytes
    assert saved == 3 * convolutions
    assert found[64, "float"].macs == found[64, "int8"].macs
    assert found[48, "int8"].weight_bytes == found[64, "int8"].weight_bytes
