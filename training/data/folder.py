"""Which images there are: an ImageFolder (one folder per class), or images without labels."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training.errors import DataError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
)
UNLABELLED = -1
"""A label that no class has."""

_WORDNET_ID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class ImageFolder:
    """The images under a folder, in a fixed order."""

    root: Path
    classes: tuple[str, ...]
    """Class names in order; empty for unlabelled images."""
    files: tuple[str, ...]
    """Paths below the root."""
    labels: tuple[int, ...]
    """Positions in `classes`; UNLABELLED throughout for unlabelled images."""

    def __len__(self) -> int:
        return len(self.files)

    @property
    def name(self) -> str:
        """What the images are called where accuracies are noted, e.g. "imagenet/val"."""
        root = self.root.resolve()
        return f"{root.parent.name}/{root.name}"

    def path(self, index: int) -> Path:
        """Return the full path of an image."""
        return self.root / self.files[index]

    def limited(self, count: int) -> "ImageFolder":
        """Keep about `count` images spread evenly, hence over all classes; 0 keeps all."""
        if count == 0 or count >= len(self):
            return self
        chosen = [i * len(self) // count for i in range(count)]
        return ImageFolder(
            self.root,
            self.classes,
            tuple(self.files[i] for i in chosen),
            tuple(self.labels[i] for i in chosen),
        )


def _images_below(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _disagreement(root: Path, found: Iterable[str], classes: tuple[str, ...]) -> DataError:
    """Say which class folders are too few and which too many."""
    missing = sorted({*classes} - {*found})
    extra = sorted({*found} - {*classes})
    return DataError(
        f"The classes of {root} do not agree with the {len(classes)} expected"
        + (f"; missing: {', '.join(missing[:5])}" if missing else "")
        + (f"; unexpected: {', '.join(extra[:5])}" if extra else "")
        + f". Name the folders as the classes, or by their numbers, 0 to {len(classes) - 1}."
    )


def index_labelled(root: Path, classes: tuple[str, ...] | None = None) -> ImageFolder:
    """Index `root`/CLASS/**/image; with `classes` given, the folders must be those."""
    if not root.is_dir():
        raise DataError(
            f"There is no folder {root}. It should hold one folder of images per class."
        )
    found = tuple(sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] != "."))
    if classes is not None and set(found) != set(classes):
        raise _disagreement(root, found, classes)
    classes = classes or found
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        for path in _images_below(root / name):
            files.append(path.relative_to(root).as_posix())
            labels.append(label)
    if not files:
        raise DataError(f"There are no images in the class folders of {root}.")
    return ImageFolder(root, classes, tuple(files), tuple(labels))


def index_for_classes(root: Path, classes: tuple[str, ...]) -> ImageFolder:
    """Index labelled images for a network whose classes are given, some of them perhaps unseen.

    Folders are named as the classes, or by their numbers, or by the WordNet ids of all of them,
    which sort as ImageNet's classes do.
    """
    found = index_labelled(root)
    numbers = _numbers(found.classes, classes)
    if numbers is None:
        raise _disagreement(root, found.classes, classes)
    labels = tuple(numbers[label] for label in found.labels)
    return ImageFolder(root, classes, found.files, labels)


def _numbers(names: tuple[str, ...], classes: tuple[str, ...]) -> list[int] | None:
    """Return which class each folder name stands for; None if that cannot be told."""
    known = {name: number for number, name in enumerate(classes)}
    if all(name in known for name in names):
        return [known[name] for name in names]
    if any(name in known for name in names):
        return None
    if all(name.isdecimal() and int(name) < len(classes) for name in names):
        return [int(name) for name in names]
    if len(names) == len(classes) and all(_WORDNET_ID.fullmatch(name) for name in names):
        return list(range(len(classes)))
    return None


def index_unlabelled(root: Path) -> ImageFolder:
    """Index every image below `root`, without labels."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.")
    files = tuple(path.relative_to(root).as_posix() for path in _images_below(root))
    if not files:
        raise DataError(f"There are no images below {root}.")
    return ImageFolder(root, (), files, (UNLABELLED,) * len(files))


def validation_root(data: Path) -> Path:
    """Return where the validation images are: DATA/val if there is one, else DATA itself."""
    return data / "val" if (data / "val").is_dir() else data


def index_training(
    data: Path, classes: tuple[str, ...] | None = None
) -> tuple[ImageFolder, ImageFolder | None]:
    """Index DATA/train and DATA/val, whose class lists must agree.

    Labels follow `classes` if these are given, all of which must then have training images.
    Without a train/ folder, DATA itself holds the classes and there is no validation.
    """
    split = (data / "train").is_dir()
    root = data / "train" if split else data
    train = index_labelled(root) if classes is None else index_for_classes(root, classes)
    if classes is not None:
        unseen = sorted({*range(len(classes))} - {*train.labels})
        if unseen:
            names = ", ".join(classes[number] for number in unseen[:5])
            raise DataError(f"{root} has no images of {names}. Add some, or train a new network.")
    if not split or not (data / "val").is_dir():
        return train, None
    if classes is None:
        return train, index_labelled(data / "val", train.classes)
    return train, index_for_classes(data / "val", classes)
