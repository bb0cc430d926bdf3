"""Class names for networks that come without."""

from pathlib import Path

from torchvision.models import ResNet18_Weights

from san_core.errors import SanError


def class_names(num_classes: int, file: Path | None = None) -> tuple[str, ...]:
    """Return class names: from a file with one a line, ImageNet's for 1,000, or numbers."""
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SanError(f"Cannot read class names from {file}: {error}.") from error
        names = tuple(line.strip() for line in lines if line.strip())
        if len(names) != num_classes:
            raise SanError(f"{file} has {len(names)} class names; the network has {num_classes}.")
        return names
    imagenet = ResNet18_Weights.DEFAULT.meta["categories"]
    if num_classes == len(imagenet):
        return tuple(imagenet)
    return tuple(f"class {index}" for index in range(num_classes))
