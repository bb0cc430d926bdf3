"""The bundle: one `.safetensors` file with everything the service needs, and no pickle.

The JSON manifest stands in the file's header under `san_manifest`; the tensors are those of the
`ScaleAdaptiveNetwork`'s state dict under `network.`, plus extras under `extra.`. Files are written
beside their place and moved there, so a reader never sees half of one.
"""

import json
import operator
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from san_core.errors import (
    BundleError,
    BundleMismatchError,
    BundleNotFoundError,
    CorruptManifestError,
    ForeignFileError,
    NewerBundleError,
    NonFiniteBundleError,
    SanError,
    TruncatedBundleError,
)
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from san_core.preprocessing import Preprocessing
from san_core.scale_adaptive_network import NetworkConfig, ScaleAdaptiveNetwork

FORMAT_VERSION = 1
DEFAULT_BUNDLE = Path(__file__).parent / "default_bundle" / "default.safetensors"

_MANIFEST_KEY = "san_manifest"
_NETWORK = "network."
_EXTRA = "extra."
# Batch norm stays in float32: it is small, and variances overflow half precision.
_STORED_AS_ASKED = (_NETWORK + "meta_learner.", _NETWORK + "shared.")
_HEADER_LIMIT = 100_000_000  # safetensors' own
_UNREADABLE_JSON = (ValueError, RecursionError)


class Accuracy(BaseModel):
    """The measured accuracy of an operating point."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    resolution: int
    mode: Mode
    precision: Precision = "float"
    top1: float = Field(ge=0.0, le=1.0)
    top5: float = Field(ge=0.0, le=1.0)
    n: int = Field(ge=1, description="How many images it was measured on.")
    dataset: str

    @property
    def point(self) -> OperatingPoint:
        """The operating point it is the accuracy of."""
        return OperatingPoint(self.resolution, self.mode, self.precision)


class Manifest(BaseModel):
    """What a bundle says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = Field(default=FORMAT_VERSION, ge=1, le=FORMAT_VERSION, strict=True)
    name: str
    version: str = "1"
    network: NetworkConfig
    classes: tuple[str, ...]
    preprocessing: Preprocessing = Preprocessing()
    accuracy: tuple[Accuracy, ...] = ()
    calibrated: tuple[int, ...] = ()
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _classes_fit(self) -> Self:
        if len(self.classes) != self.network.num_classes:
            raise ValueError(
                f"{len(self.classes)} class names for {self.network.num_classes} classes"
            )
        return self

    def accuracy_of(self, point: OperatingPoint) -> Accuracy | None:
        """Return the measured accuracy of a point, if it was measured."""
        return next((a for a in self.accuracy if a.point == point), None)


@dataclass
class Bundle:
    """A loaded bundle."""

    manifest: Manifest
    network: ScaleAdaptiveNetwork
    extras: dict[str, Tensor] = field(default_factory=dict)
    path: Path | None = None


def save(
    path: Path | str,
    network: ScaleAdaptiveNetwork,
    manifest: Manifest,
    *,
    dtype: torch.dtype = torch.float32,
    extras: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a bundle atomically; kernels and shared tensors are stored as `dtype`."""
    path = Path(path)
    if manifest.network != network.config:
        raise BundleMismatchError("The manifest describes another network than the one given.")
    calibrated = tuple(sorted(network.calibrated_resolutions, reverse=True))
    manifest = manifest.model_copy(update={"calibrated": calibrated})
    tensors = {_NETWORK + name: t for name, t in network.state_dict().items()}
    tensors |= {_EXTRA + name: t for name, t in (extras or {}).items()}
    stored = {}
    for name, tensor in tensors.items():
        kept = tensor.detach().cpu()
        if kept.is_floating_point() and name.startswith(_STORED_AS_ASKED):
            kept = kept.to(dtype)
        if kept.is_floating_point() and not bool(kept.isfinite().all()):
            raise NonFiniteBundleError(
                f"Tensor {name!r} is not finite as {dtype}; nothing was written to {path}."
            )
        stored[name] = kept.contiguous()
    header = {_MANIFEST_KEY: manifest.model_dump_json()}
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as beside:
            half_written = Path(beside) / path.name
            save_file(stored, half_written, metadata=header)
            with half_written.open("rb") as written:
                os.fsync(written.fileno())
            half_written.chmod(0o644)  # safetensors writes for its owner; services are others
            half_written.replace(path)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"Cannot write the bundle {path}: {error}.") from error


def _read_header(path: Path) -> dict[str, Any]:
    """Read the safetensors header, telling foreign, truncated and corrupt files apart."""
    if not path.is_file():
        hint = "" if path != DEFAULT_BUNDLE else " (the embedded default bundle is missing)"
        raise BundleNotFoundError(f"There is no bundle at {path}{hint}.")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= _HEADER_LIMIT:
            raise ForeignFileError(f"{path} is not a bundle: it is no safetensors file.")
        raw = file.read(length)
    if not raw.startswith(b"{"):
        raise ForeignFileError(f"{path} is not a bundle: it is no safetensors file.")
    if len(raw) < length:
        raise TruncatedBundleError(f"{path} ends within its header; copy it again.")
    try:
        header: dict[str, Any] = json.loads(raw)
        ends = [
            operator.index(entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
        if not isinstance(header.get("__metadata__", {}), dict):
            raise TypeError("its metadata is no mapping")
    except (LookupError, TypeError, AttributeError, *_UNREADABLE_JSON) as error:
        raise ForeignFileError(
            f"{path} is not a bundle: its header is not safetensors'."
        ) from error
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        raise TruncatedBundleError(f"{path} has {size} of {expected} bytes; copy it again.")
    return header


def read_manifest(path: Path | str | None = None) -> Manifest:
    """Read only the manifest of a bundle (of the embedded default one if no path is given)."""
    path = Path(path or DEFAULT_BUNDLE)
    text = _read_header(path).get("__metadata__", {}).get(_MANIFEST_KEY)
    if not isinstance(text, str):
        raise ForeignFileError(
            f"{path} is a safetensors file but not a bundle: it has no manifest. "
            "Make a bundle with 'san train', 'san lift' or 'san import-official'."
        )
    try:
        version = json.loads(text).get("format_version")
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise NewerBundleError(
                f"{path} has bundle format {version}, and this san-serve reads up to "
                f"{FORMAT_VERSION}; upgrade san-serve."
            )
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise CorruptManifestError(
            f"The manifest of {path} is not valid: {where}: {first['msg']}."
        ) from error
    except (AttributeError, SanError, *_UNREADABLE_JSON) as error:
        if isinstance(error, NewerBundleError):
            raise
        raise CorruptManifestError(f"The manifest of {path} is not valid: {error}.") from error


def load(path: Path | str | None = None, device: str | torch.device = "cpu") -> Bundle:
    """Load a bundle (the embedded default one if no path is given), checked and ready to run.

    The file is memory-mapped. On the CPU float32 tensors stay in the mapping, shared by every
    process that loads the same file; half precision is widened to float32.
    """
    path = Path(path or DEFAULT_BUNDLE)
    manifest = read_manifest(path)
    network = ScaleAdaptiveNetwork(manifest.network, initialisation=None)
    for resolution in manifest.calibrated:
        empty = torch.empty(sum(slot.channels for slot in network.norms))
        network.set_calibrated(resolution, {"running_mean": empty, "running_var": empty})
    tensors = _read_tensors(path, device)
    state = {n.removeprefix(_NETWORK): t for n, t in tensors.items() if n.startswith(_NETWORK)}
    extras = {n.removeprefix(_EXTRA): t for n, t in tensors.items() if n.startswith(_EXTRA)}
    _check_fit(path, network.state_dict(), state)
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False).to(device)
    return Bundle(manifest, network.eval(), extras, path)


def _read_tensors(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    tensors = {}
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                tensor = file.get_tensor(name)
                if tensor.is_floating_point():
                    tensor = tensor.float()
                    if not bool(tensor.isfinite().all()):
                        raise NonFiniteBundleError(
                            f"{path} carries NaN or infinity in {name!r}; it must not be served."
                        )
                tensors[name] = tensor
    except SafetensorError as error:
        raise ForeignFileError(f"{path} is not a readable safetensors file: {error}.") from error
    return tensors


def _check_fit(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    missing = sorted(expected.keys() - found.keys())
    unknown = sorted(found.keys() - expected.keys())
    problems = [f"missing {name}" for name in missing] + [f"unknown {name}" for name in unknown]
    for name in sorted(expected.keys() & found.keys()):
        right, given = expected[name], found[name]
        if right.shape != given.shape:
            problems.append(
                f"{name} has shape {tuple(given.shape)} instead of {tuple(right.shape)}"
            )
        elif right.dtype != given.dtype:
            problems.append(f"{name} is of {given.dtype} instead of {right.dtype}")
    if problems:
        listed = "; ".join(problems[:5])
        raise BundleMismatchError(f"The tensors of {path} do not fit its manifest: {listed}.")


def replace_accuracy(manifest: Manifest, measured: tuple[Accuracy, ...]) -> Manifest:
    """Return the manifest with `measured` in the place of earlier figures for the same points."""
    points = {a.point for a in measured}
    kept = tuple(a for a in manifest.accuracy if a.point not in points)
    ordered = sorted((*kept, *measured), key=lambda a: a.point, reverse=True)
    return manifest.model_copy(update={"accuracy": tuple(ordered)})
