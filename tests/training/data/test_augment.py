import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from training.data.augment import all_resolutions, random_box, shorter_side_needed


@given(
    width=st.integers(8, 3000),
    height=st.integers(8, 3000),
    area=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**32),
)
def test_a_crop_lies_inside_and_is_large_enough(
    width: int, height: int, area: float, seed: int
) -> None:
    left, top, right, bottom = random_box(width, height, area, np.random.default_rng(seed))
    assert -1e-6 <= left < right <= width + 1e-6
    assert -1e-6 <= top < bottom <= height + 1e-6
    aspect = (right - left) / (bottom - top)
    assert 0.749 < aspect < 1.334
    whole = min(width, height * 4 / 3) * min(height, width * 4 / 3)  # the fallback's largest
    assert (right - left) * (bottom - top) >= min(area * width * height, whole) * 0.999


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def crops(seed: int, **options: object) -> dict[int, np.ndarray]:
    settings = {"area": 0.3, "flip": True, "interpolation": "bilinear"} | options
    rng = np.random.default_rng(seed)
    return all_resolutions(noise(200, 150), (96, 64, 32), rng=rng, **settings)  # type: ignore[arg-type]


def test_every_resolution_shows_the_same_crop() -> None:
    smooth = noise(8, 6).resize((200, 150), Image.Resampling.BICUBIC)
    for seed in range(6):  # mirrored and not
        made = all_resolutions(
            smooth,
            (96, 64, 32),
            area=0.3,
            flip=True,
            interpolation="bilinear",
            rng=np.random.default_rng(seed),
        )
        for side in (64, 32):
            again = Image.fromarray(made[96]).resize((side, side), Image.Resampling.BILINEAR)
            assert np.abs(np.asarray(again, float) - made[side]).mean() < 2.0


def test_resizing_is_antialiased() -> None:
    # White noise averages out only if every source pixel is counted.
    small = crops(0, area=1.0)[32].astype(float)
    assert small.std() < 0.5 * np.asarray(noise(200, 150), float).std()


def test_the_same_seed_makes_the_same_crop() -> None:
    first, again, other = crops(1), crops(1), crops(2)
    assert all(np.array_equal(first[side], again[side]) for side in first)
    assert not np.array_equal(first[96], other[96])


def test_half_of_the_crops_are_mirrored_only_if_asked() -> None:
    ramp = Image.fromarray(np.tile(np.arange(90, dtype=np.uint8), (90, 1))).convert("RGB")
    rising = []
    for flip in (False, True):
        for seed in range(40):
            rng = np.random.default_rng(seed)
            options = {"area": 0.5, "flip": flip, "interpolation": "bilinear"}
            made = all_resolutions(ramp, (32,), rng=rng, **options)[32]  # type: ignore[arg-type]
            rising.append(bool(made[0, -1, 0] > made[0, 0, 0]))
    assert all(rising[:40])
    assert 8 < sum(rising[40:]) < 32


@pytest.mark.parametrize("area", [0.08, 0.35, 1.0])
def test_reduced_decoding_never_costs_a_crop_its_pixels(area: float) -> None:
    side = shorter_side_needed(224, area)
    rng = np.random.default_rng(0)
    for _ in range(200):
        left, top, right, bottom = random_box(side, side, area, rng)
        assert min(right - left, bottom - top) >= 223.9
