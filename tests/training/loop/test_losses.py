import torch
from torch import Tensor

from san_core.network.network_config import MetaLearnerKind
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from tests.training.conftest import MakeNetwork
from training.loop.losses import cross_entropy, scale_distillation, soft_labels
from training.loop.objective import Batch, MixedScale, Passes

RESOLUTIONS = (64, 48, 32)


def batch() -> Batch:
    torch.manual_seed(1)
    images = {side: torch.randn(6, 3, side, side) for side in RESOLUTIONS}
    return Batch(images, torch.tensor([0, 1, 2, 0, 1, 2]))


def joint_loss(network: ScaleAdaptiveNetwork, data: Batch, alpha: float, beta: float) -> Tensor:
    """Eq. 4 written down as it stands: all graphs at once."""
    assert data.labels is not None
    logits = {side: network(data.images[side], side) for side in RESOLUTIONS}
    entropy = sum(
        -logits[side].log_softmax(1)[torch.arange(6), data.labels].mean() for side in RESOLUTIONS
    )
    divergence = torch.zeros(())
    for large in RESOLUTIONS:
        for small in RESOLUTIONS:
            if small < large:
                p = logits[large].detach().softmax(1)
                log_q = logits[small].log_softmax(1)
                divergence = divergence + (p * (p.log() - log_q)).sum(1).mean()
    return alpha * entropy + beta * divergence


def gradients(network: ScaleAdaptiveNetwork) -> dict[str, Tensor]:
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def test_backward_at_once_gives_the_gradient_of_the_joint_loss(make_network: MakeNetwork) -> None:
    for kind in MetaLearnerKind:
        for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (1.0, 0.0)):
            one, other = make_network(kind=kind), make_network(kind=kind)
            joint = joint_loss(one.train(), batch(), alpha, beta)
            joint.backward()  # type: ignore[no-untyped-call]
            objective = MixedScale(other, alpha=alpha, beta=beta)
            objective.train()
            parts = objective.run(batch(), Passes(torch.autograd.backward))

            torch.testing.assert_close(parts.loss, joint.detach(), atol=1e-5, rtol=1e-5)
            expected, found = gradients(one), gradients(other)
            assert expected.keys() == found.keys()
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5)
            for name, buffer in one.named_buffers():  # statistics were updated alike
                torch.testing.assert_close(dict(other.named_buffers())[name], buffer)


def test_each_graph_is_gone_before_the_next_is_made(make_network: MakeNetwork) -> None:
    alive = 0
    most = 0

    class Counting(MixedScale):
        pass

    objective = Counting(make_network())
    objective.train()
    network = objective.network

    def forward(images: Tensor, resolution: int) -> Tensor:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        out: Tensor = network(images, resolution)
        return out

    def backward(loss: Tensor) -> None:
        nonlocal alive
        torch.autograd.backward(loss)
        alive -= 1

    objective._forward = forward
    objective.run(batch(), Passes(backward))
    assert (alive, most) == (0, 1)


def test_parts_name_every_loss_and_count_hits(make_network: MakeNetwork) -> None:
    objective = MixedScale(make_network())
    parts = objective.run(batch(), Passes(torch.autograd.backward))
    assert set(parts.losses) == {
        *(f"cross_entropy/{side}" for side in RESOLUTIONS),
        "distillation/48",
        "distillation/32",
    }
    assert all(0 <= int(count) <= 6 for count in parts.hits.values())
    torch.testing.assert_close(parts.loss, torch.stack([*parts.losses.values()]).sum())


def test_distillation_is_the_sum_over_larger_resolutions_and_teaches_down_only() -> None:
    torch.manual_seed(0)
    student = torch.randn(4, 5, requires_grad=True)
    teachers = [torch.randn(4, 5, requires_grad=True) for _ in range(2)]
    loss = scale_distillation(student, [soft_labels(t) for t in teachers])
    expected = sum(
        (t.softmax(1) * (t.log_softmax(1) - student.log_softmax(1))).sum(1).mean() for t in teachers
    )
    torch.testing.assert_close(loss, expected)
    torch.autograd.backward(loss)
    assert student.grad is not None
    assert all(t.grad is None for t in teachers)
    assert float(scale_distillation(student, [soft_labels(student)]).detach()) < 1e-6
    assert float(scale_distillation(student, []).detach()) == 0.0


def test_label_smoothing() -> None:
    logits, labels = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0])
    log_p = logits.log_softmax(1)[0]
    torch.testing.assert_close(cross_entropy(logits, labels), -log_p[0])
    smoothed = -(0.9 * log_p[0] + 0.1 * log_p.mean())
    torch.testing.assert_close(cross_entropy(logits, labels, 0.1), smoothed)
