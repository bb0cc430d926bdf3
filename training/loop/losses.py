"""The loss of mixed-scale training (paper, Section 3), one resolution at a time."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Eq. 1 for one resolution, averaged over the batch."""
    return F.cross_entropy(logits.float(), labels, label_smoothing=smoothing)


def scale_distillation(logits: Tensor, teachers: Sequence[Tensor]) -> Tensor:
    """Eq. 3 for one resolution S_j: the sum over all S_i > S_j of KL(p(S_i) || p(S_j)).

    `teachers` are the log-probabilities [n, classes] of the larger resolutions. They are fixed soft
    labels: no gradient reaches them.
    """
    student = F.log_softmax(logits.float(), dim=1)
    total = torch.zeros((), device=logits.device)
    for teacher in teachers:
        total = total + F.kl_div(student, teacher.detach(), reduction="batchmean", log_target=True)
    return total


def soft_labels(logits: Tensor) -> Tensor:
    """Return what a resolution teaches the smaller ones: log-probabilities without a graph."""
    return F.log_softmax(logits.detach().float(), dim=1)
