import copy
from collections.abc import Callable

import pytest
import torch

from san_core.errors import ArchitectureError, ResolutionError, SanError
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.network.architectures import FIRST_CLASS, build
from san_core.network.calibration import calibrate
from san_core.network.generation import KernelBuffer
from san_core.network.network_config import MetaLearnerKind, NetworkConfig, head_tensors
from san_core.network.private_batch_norm import by_layer
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

Make = Callable[..., ScaleAdaptiveNetwork]
TRAINED, INTERPOLATED, ABOVE, BELOW = 64, 80, 112, 32


@pytest.mark.parametrize("architecture", FIRST_CLASS)
def test_generated_stock_and_folded_networks_equal_the_functional_one(
    architecture: str, make_network: Make
) -> None:
    network = make_network(architecture)
    stock = build(architecture, 7).eval()
    folded = FoldedArchitecture(network.skeleton)
    assert folded.folded == len(network.norms)
    images = torch.rand(2, 3, 64, 64)
    for mode in Mode:
        for resolution in (TRAINED, INTERPOLATED, ABOVE, BELOW):
            state = network.generate(resolution, mode)
            assert list(state) == list(stock.state_dict())
            stock.load_state_dict(state)
            with torch.no_grad():
                expected = network(images, resolution, mode)
                torch.testing.assert_close(stock(images), expected, rtol=1e-5, atol=1e-6)
                folded.module.load_state_dict(folded.fold(state), assign=True)
                scale = float(expected.abs().max())
                error = float((folded.module(images) - expected).abs().max())
                assert error <= 1e-4 * scale


@pytest.mark.parametrize("mode", list(Mode))
def test_temperatures_divide_the_logits_of_every_way_to_run(mode: Mode, make_network: Make) -> None:
    network = make_network()
    images = torch.rand(2, 3, INTERPOLATED, INTERPOLATED)
    with torch.no_grad():
        plain = network(images, INTERPOLATED, mode)
        network.temperatures = ((64, 0.5), (96, 1.0))
        stock = build("mobilenet_v2", 7).eval()
        folded = FoldedArchitecture(network.skeleton)
        stock.load_state_dict(network.generate(INTERPOLATED, mode))
        folded.module.load_state_dict(folded.generate(network, INTERPOLATED, mode), assign=True)
        for found in (network(images, INTERPOLATED, mode), stock(images), folded.module(images)):
            expected = plain / (0.5 if mode is Mode.PROXY else 0.75)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(
            network.shared.by_name()["classifier.1.weight"],
            network.generate(96)["classifier.1.weight"],
        )


def test_an_architecture_without_a_linear_head_has_no_temperatures() -> None:
    assert head_tensors({"a.weight": (7, 3), "fc.weight": (7, 9), "fc.bias": (7,)}, 7) == (
        "fc.weight",
        "fc.bias",
    )
    with pytest.raises(ArchitectureError, match="linear head"):
        head_tensors({"classifier.bias": (7,)}, 7)


def test_modes_differ_between_trained_resolutions_and_agree_on_them(make_network: Make) -> None:
    network = make_network()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        at_trained = [network(images, TRAINED, mode) for mode in Mode]
        between = [network(images, INTERPOLATED, mode) for mode in Mode]
    assert torch.equal(at_trained[0], at_trained[1])
    assert torch.equal(at_trained[0], at_trained[2])
    assert not torch.allclose(between[0], between[1])
    assert not torch.allclose(between[1], between[2])


def test_data_free_interpolates_all_four_batch_norm_vectors(make_network: Make) -> None:
    network = make_network()
    state = network.generate(72, Mode.DATA_FREE)  # a quarter of the way from 64 to 96
    lower, upper = network.batch_norm(64).flat(), network.batch_norm(96).flat()
    expected = by_layer({k: 0.75 * lower[k] + 0.25 * upper[k] for k in lower}, network.norms)
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor)


def test_no_generated_tensor_is_computed_twice_and_all_share_one_buffer(
    make_network: Make,
) -> None:
    network = make_network()
    state = network.generate(72)
    kernels = [state[f"{slot.name}.weight"] for slot in network.kernels]
    assert len({k.untyped_storage().data_ptr() for k in kernels}) == 1
    assert sum(k.numel() for k in kernels) == network.meta_learner.bias.numel()
    head = state["classifier.1.weight"]
    assert head.data_ptr() == network.shared.by_name()["classifier.1.weight"].data_ptr()
    assert not any(tensor.requires_grad for tensor in state.values())


@pytest.mark.parametrize("kind", MetaLearnerKind)
def test_generation_into_memory_used_before(kind: MetaLearnerKind, make_network: Make) -> None:
    piecewise = kind is MetaLearnerKind.PIECEWISE
    network = make_network(meta_learner=kind, knots=(96, 72, 48) if piecewise else ())
    if piecewise:  # which starts with the same kernels everywhere
        torch.nn.init.normal_(network.meta_learner.weight)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    buffer = KernelBuffer()
    addresses = set()
    points = [(64, Mode.PROXY), (INTERPOLATED, Mode.IDEAL), (INTERPOLATED, Mode.DATA_FREE)]
    for resolution, mode in [*points, (TRAINED, Mode.PROXY), *points]:
        expected = network.generate(resolution, mode)
        state = network.generate(resolution, mode, out=buffer)
        assert list(state) == list(expected)
        assert all(torch.equal(state[name], expected[name]) for name in expected)
        assert buffer.flat is not None
        addresses.add(buffer.flat.data_ptr())
    if kind is not MetaLearnerKind.PRIVATE:  # whose kernels are the meta network's own
        assert len(addresses) == 1
    assert all(torch.equal(network.state_dict()[name], before[name]) for name in before)


@pytest.mark.parametrize("architecture", ["mobilenet_v2", "densenet121"])
def test_a_folded_main_network_outlives_the_next_one(architecture: str, make_network: Make) -> None:
    """DenseNet keeps some BN layers, whose convolutions have nothing folded into them."""
    network = make_network(architecture)
    folded = FoldedArchitecture(network.skeleton)
    first = folded.generate(network, TRAINED)
    folded.generate(network, 96)
    expected = folded.fold(network.generate(TRAINED))
    assert all(torch.equal(first[name], expected[name]) for name in expected)


def test_generation_follows_later_changes_of_the_meta_network(make_network: Make) -> None:
    network = make_network()
    network.generate(64)
    with torch.no_grad():
        network.batch_norm(64).bias.add_(1.0)
        network.shared.by_name()["classifier.1.bias"].add_(1.0)
    moved = copy.deepcopy(network)
    for name, tensor in network.main_parameters(64).items():
        assert torch.equal(network.generate(64)[name], tensor), name
        assert torch.equal(moved.generate(64)[name], tensor), name
    network.load_state_dict({k: v + 1 for k, v in network.state_dict().items()}, assign=True)
    for name, tensor in network.main_parameters(64).items():
        assert torch.equal(network.generate(64)[name], tensor), name


def test_the_skeleton_adds_no_parameters(make_network: Make) -> None:
    network = make_network()
    main = sum(p.numel() for p in build("mobilenet_v2", 7, "meta").parameters())
    kernels = sum(slot.numel for slot in network.kernels)
    channels = sum(slot.channels for slot in network.norms)
    # W beside every kernel, and two more private batch norms than the stock network has
    expected = main + kernels + 2 * channels * (len(network.resolutions) - 1)
    assert sum(p.numel() for p in network.parameters()) == expected


def test_training_writes_the_statistics_of_the_resolution_that_ran_and_of_no_other(
    make_network: Make,
) -> None:
    network = copy.deepcopy(make_network("resnet18")).train()
    before = {r: network.batch_norm(r).running_mean.clone() for r in network.resolutions}
    network(torch.rand(2, 3, 64, 64), 64).sum().backward()
    assert not torch.equal(network.batch_norm(64).running_mean, before[64])
    assert network.batch_norm(64).num_batches_tracked.tolist() == [1] * len(network.norms)
    for other in (96, 48):
        assert torch.equal(network.batch_norm(other).running_mean, before[other])
        assert network.batch_norm(other).weight.grad is None
    assert network.batch_norm(64).weight.grad is not None
    assert network.meta_learner.weight.grad is not None


def test_statistics_in_training_equal_the_stock_networks(make_network: Make) -> None:
    network = copy.deepcopy(make_network("resnet18"))
    stock = build("resnet18", 7)
    stock.load_state_dict(network.generate(64))
    images = torch.rand(4, 3, 64, 64)
    with torch.no_grad():
        network.train()(images, 64)
        stock.train()(images)
    for name, tensor in network.generate(64).items():
        torch.testing.assert_close(tensor, stock.state_dict()[name])


@pytest.mark.parametrize(
    "options",
    [
        {"meta_learner": MetaLearnerKind.MLP_8},
        {"meta_learner": MetaLearnerKind.MLP_16},
        {"meta_learner": MetaLearnerKind.PRIVATE},
        {"shared_batch_norm": True},
        {"generate_stem": False},
    ],
)
def test_variants_generate_what_they_run(options: dict[str, object], make_network: Make) -> None:
    network = make_network("resnet18", **options)
    images = torch.rand(1, 3, 64, 64)
    stock = build("resnet18", 7).eval()
    for mode in Mode:
        stock.load_state_dict(network.generate(INTERPOLATED, mode))
        with torch.no_grad():
            expected = network(images, INTERPOLATED, mode)
            torch.testing.assert_close(stock(images), expected, rtol=1e-5, atol=1e-6)
    assert len(network.batch_norms) == (1 if options.get("shared_batch_norm") else 3)


def test_an_instance_can_be_lifted() -> None:
    module = build("resnet18", 4)
    network = ScaleAdaptiveNetwork(NetworkConfig("resnet18", (64, 48), 4), module)
    assert torch.equal(network.shared.by_name()["fc.weight"], module.fc.weight)  # type: ignore[union-attr]
    assert network.skeleton is not module


def test_an_unusable_resolution_is_refused(make_network: Make) -> None:
    with pytest.raises(ResolutionError):
        make_network().generate(8)
    with pytest.raises(ResolutionError, match="not one of the trained"):
        make_network().batch_norm(80)


def test_calibration_is_the_exact_average_however_the_images_are_batched(
    make_network: Make,
) -> None:
    network = make_network("resnet18")
    images = torch.rand(8, 3, 80, 80)
    with torch.no_grad():
        inputs = torch.nn.functional.conv2d(
            images, network.generate(80, Mode.IDEAL)["conv1.weight"], stride=2, padding=3
        )
    mean, var = inputs.mean((0, 2, 3)), inputs.var((0, 2, 3))
    before = copy.deepcopy(network.state_dict())
    for size in (8, 2):
        statistics = calibrate(network, 80, images.split(size))
        torch.testing.assert_close(statistics["running_mean"][:64], mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(statistics["running_var"][:64], var, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[name], t) for name, t in network.state_dict().items())


def test_ideal_uses_calibrated_statistics_and_the_nearest_scale_and_shift(
    make_network: Make,
) -> None:
    network = copy.deepcopy(make_network("resnet18"))
    statistics = calibrate(network, 80, [torch.rand(4, 3, 80, 80)])
    network.set_calibrated(80, statistics)
    state = network.generate(80, Mode.IDEAL)
    assert torch.equal(state["bn1.running_mean"], statistics["running_mean"][:64])
    assert torch.equal(state["bn1.weight"], network.generate(64)["bn1.weight"])
    assert network.calibrated_resolutions == (80,)


def test_calibration_without_images_is_refused(make_network: Make) -> None:
    with pytest.raises(SanError, match="at least one batch"):
        calibrate(make_network("resnet18"), 80, [])
