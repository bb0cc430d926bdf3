"""What the README shows must work as shown."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_the_library_example_lifts_generates_and_exports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    statements = [line for line in example.splitlines() if line and "import" not in line]
    assert len(statements) <= 5

    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)

    stock = names["stock"]
    assert isinstance(stock, torch.nn.Module)
    image = torch.rand(1, 3, 144, 144, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = stock(image).numpy()
    session = onnxruntime.InferenceSession("resnet18-144.onnx")
    (actual,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_the_make_targets_it_names_exist():
    named = set(re.findall(r"\bmake ([a-z-]+)", "\n".join([*blocks("sh"), README])))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_its_links_lead_somewhere(link):
    assert (ROOT / link).exists()
