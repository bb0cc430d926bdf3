"""Temperatures: how sure of itself a network may be, found without labels.

Right scores are as high on average as the network is right. How often that is can be estimated
without labels by how often another network, the judge, trained on its own, says the same (Jiang et
al., "Assessing generalization of SGD via disagreement", 2022). That is too high an estimate: both
share mistakes. If the judge's own accuracy is known it can do better: its scores are made as high
on average as it is right, and what it then gives to the network's answer is the chance that the
answer is right.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from san_core.mode import Mode
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

_COLDEST, _HOTTEST = 0.1, 10.0
"""Temperatures that are searched: a factor of ten to either side of none."""
_HALVINGS = 40
"""Of the interval: beyond what a float tells apart."""


def confidence(logits: Tensor, temperature: float) -> float:
    """Return the mean score of the first guesses of logits [n, classes] at a temperature."""
    return float((logits / temperature).softmax(1).amax(1).mean())


def temperature_for(logits: Tensor, rate: float) -> float:
    """Find the temperature at which the mean score of the first guesses is `rate`.

    The hotter, the less sure. A rate that no temperature gives gets the nearest end of the range.
    """
    low, high = math.log(_COLDEST), math.log(_HOTTEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if confidence(logits, math.exp(middle)) > rate:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def expected_accuracy(answers: Tensor, judge: Tensor, judge_accuracy: float | None) -> float:
    """Estimate how often answers [n] are right from the judge's logits [n, classes].

    Without the judge's accuracy it is how often both agree.
    """
    if judge_accuracy is None:
        return float((answers == judge.argmax(1)).double().mean())
    chances = (judge / temperature_for(judge, judge_accuracy)).softmax(1)
    return float(chances.gather(1, answers[:, None]).double().mean())


@torch.inference_mode()
def logits_of(network: ScaleAdaptiveNetwork, resolution: int, batches: Iterable[Tensor]) -> Tensor:
    """Run images [n, 3, T, T] through the main network of a resolution."""
    return torch.cat([network(images, resolution, Mode.DATA_FREE) for images in batches])
