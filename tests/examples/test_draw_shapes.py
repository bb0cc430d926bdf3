from __future__ import annotations

from PIL import Image

from examples.draw_shapes import SHAPES, draw_dataset


def files(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*.png"))}


def test_it_draws_every_class_in_both_splits(tmp_path):
    draw_dataset(tmp_path, images=8, size=48)
    for split, count in (("train", 8), ("val", 2)):
        for shape in SHAPES:
            paths = sorted((tmp_path / split / shape).iterdir())
            assert len(paths) == count
            with Image.open(paths[0]) as image:
                assert (image.mode, image.size) == ("RGB", (48, 48))


def test_a_seed_draws_the_same_images_again(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        draw_dataset(tmp_path / name, images=4, size=32, seed=seed)
    assert files(tmp_path / "a") == files(tmp_path / "b") != files(tmp_path / "c")
