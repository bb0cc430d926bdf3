from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.data.folder import index_unlabelled
from training.data.mixing import MixedSamples, ResolutionDraw, SteppedOrder, cutmix, mixup


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for index in range(6):
        pixels = rng.integers(0, 256, (40, 56, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{index}.png")
    return root


def samples(folder: Path, *, mixup: float = 0.0, cutmix: float = 0.0) -> MixedSamples:
    return MixedSamples(
        index_unlabelled(folder),
        ResolutionDraw((32, 16), (28, 24, 20)),
        seed=3,
        area=0.25,
        flip=True,
        interpolation="bicubic",
        mixup=mixup,
        cutmix=cutmix,
    )


def test_a_blend_lies_between_its_images_and_nearer_the_first() -> None:
    dark = {8: np.zeros((8, 8, 3), np.uint8), 4: np.zeros((4, 4, 3), np.uint8)}
    light = {side: np.full_like(pixels, 200) for side, pixels in dark.items()}
    mixed = mixup(dark, light, np.random.default_rng(0))
    assert len({int(v) for pixels in mixed.values() for v in np.unique(pixels)}) == 1
    assert 0 < mixed[8].max() <= 100


def test_a_piece_lies_at_the_same_place_at_every_resolution() -> None:
    first = {side: np.zeros((side, side, 3), np.uint8) for side in (64, 32)}
    second = {side: np.full((side, side, 3), 255, np.uint8) for side in (64, 32)}
    for seed in range(20):
        mixed = cutmix(first, second, np.random.default_rng(seed))
        share = {side: (pixels > 0).mean() for side, pixels in mixed.items()}
        assert 0.05 < share[64] < 0.55
        assert abs(share[64] - share[32]) < 0.06
        centres = [np.argwhere(pixels[..., 0]).mean(0) / side for side, pixels in mixed.items()]
        np.testing.assert_allclose(*centres, atol=0.04)
    assert not first[64].any()


def test_a_batch_has_the_same_resolutions_throughout(folder: Path) -> None:
    data = samples(folder, mixup=0.4, cutmix=0.4)
    seen = set()
    for step in range(12):
        sides = {tuple(data[(0, index, step)].pixels) for index in range(6)}
        assert len(sides) == 1
        seen |= sides
    assert seen == {(32, 28, 16), (32, 24, 16), (32, 20, 16)}


def test_the_crop_depends_on_epoch_and_image_and_not_on_the_step(folder: Path) -> None:
    data = samples(folder, mixup=0.4, cutmix=0.4)
    again = samples(folder, mixup=0.4, cutmix=0.4)
    for index in range(6):
        one, two = data[(1, index, 0)].pixels[32], again[(1, index, 5)].pixels[32]
        assert one.equal(two)
        assert not one.equal(data[(2, index, 0)].pixels[32])


def test_mixing_changes_images_only_if_asked(folder: Path) -> None:
    plain, mixed = samples(folder), samples(folder, mixup=0.5, cutmix=0.49)
    changed = [not plain[(0, i, 0)].pixels[32].equal(mixed[(0, i, 0)].pixels[32]) for i in range(6)]
    assert sum(changed) >= 4


def test_an_unreadable_partner_is_reported_and_replaced(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "3.png").write_bytes(b"broken")
    data = samples(tmp_path, mixup=0.99)
    made = [data[(epoch, 0, 0)] for epoch in range(30)]
    assert all(sample.pixels for sample in made)
    assert any(sample.unreadable == ["3.png"] for sample in made)


def test_steps_are_counted_over_accumulated_batches_and_after_a_resume() -> None:
    order = SteppedOrder(images=24, batch_size=2, accumulate=3, seed=1)
    batches = list(order.batches(epoch=2))
    assert [{key[2] for key in batch} for batch in batches] == [{i // 3} for i in range(12)]
    assert list(order.batches(epoch=2, first_step=2)) == batches[6:]
