"""Draw a small labelled data set of coloured shapes: OUT/{train,val}/CLASS/NNN.png.

    python examples/draw_shapes.py runs/shapes --images 40

Enough to see a training run work from end to end without downloading anything.
"""

import argparse
import random
from pathlib import Path

from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "cross")


def draw(shape: str, size: int, rng: random.Random) -> Image.Image:
    """Draw one shape of random colour, place and size on a background of another colour."""
    background = tuple(rng.randrange(0, 110) for _ in range(3))
    colour = tuple(rng.randrange(140, 256) for _ in range(3))
    image = Image.new("RGB", (size, size), background)
    pen = ImageDraw.Draw(image)
    r = rng.uniform(0.2, 0.32) * size
    x, y = (rng.uniform(0.4, 0.6) * size for _ in range(2))
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
    else:
        pen.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=colour)
        pen.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=colour)
    return image


def draw_dataset(out: Path, images: int, size: int, seed: int = 0) -> None:
    """Draw `images` per class for training and a quarter of that for validation."""
    rng = random.Random(seed)
    for split, count in (("train", images), ("val", max(1, images // 4))):
        for shape in SHAPES:
            folder = out / split / shape
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(shape, size, rng).save(folder / f"{number:03}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=40, help="per class, for training")
    parser.add_argument("--size", type=int, default=96, help="side in pixels")
    args = parser.parse_args()
    draw_dataset(args.out, args.images, args.size)
    print(f"{len(SHAPES)} classes in {args.out}")


if __name__ == "__main__":
    main()
