"""The bundle: one `.safetensors` file with everything the service needs, and no pickle.

The JSON manifest is in the file's header under `san_manifest`; the tensors are those of the
`ScaleAdaptiveNetwork`'s state dict under `network.`, plus extras under `extra.`. A tensor that
equals another one, as the statistics of a lifted network's batch norms do, is stored once;
`san_aliases` in the header says whose it is. Files are written beside their place and moved there,
so a reader never sees half of one.

Reading needs no torch: `read` gives the tensors as arrays, and the network is made of them when
it is asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from san_core.atomic import replacing
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
from san_core.network.network_config import NetworkConfig, Temperatures
from san_core.preprocessing import Preprocessing
from san_core.resolution import check_resolution

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from san_core.classification import Prediction
    from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

Array = NDArray[Any]

FORMAT_VERSION = 2
"""2: crops and temperatures by resolution, piecewise linear kernels, equal tensors stored once.
Format 1 is still read."""
DEFAULT_BUNDLE = Path(__file__).parent / "default_bundle" / "default.safetensors"

_MANIFEST_KEY = "san_manifest"
_ALIASES_KEY = "san_aliases"
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
    temperatures: Temperatures = Field(
        default=(), description="By resolution, what logits are divided by to make scores right."
    )
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _classes_fit(self) -> Self:
        if len(self.classes) != self.network.num_classes:
            raise ValueError(
                f"{len(self.classes)} class names for {self.network.num_classes} classes"
            )
        if not all(0.0 < value < math.inf for _, value in self.temperatures):
            raise ValueError("a temperature is not above 0")
        return self


class Bundle:
    """A loaded bundle: the manifest, and the tensors as a network or as arrays.

    Either is made of the other when it is first asked for, and shares its memory where it can.
    """

    def __init__(
        self,
        manifest: Manifest,
        network: ScaleAdaptiveNetwork | None = None,
        extras: Mapping[str, Tensor | Array] | None = None,
        path: Path | None = None,
        *,
        arrays: Mapping[str, Array] | None = None,
        sha256: str = "",
    ) -> None:
        self.manifest = manifest
        self.sha256 = sha256
        """Of the file it was read from; empty if it was not."""
        self.extras: dict[str, Any] = dict(extras or {})
        """Further tensors in the file: the ranges of int8."""
        self.path = path
        if network is not None:
            self.network = network
        if arrays is not None:
            self.arrays = arrays

    @cached_property
    def network(self) -> ScaleAdaptiveNetwork:
        """The meta network; needs torch."""
        return _make_network(self.manifest, self.arrays, self.path)

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """The tensors of the network's state dict, as they are stored."""
        return {n: t.detach().cpu().numpy() for n, t in self.network.state_dict().items()}

    def classify(
        self,
        image: bytes | Path | str,
        resolution: int | None = None,
        mode: Mode | None = None,
        top_k: int = 5,
    ) -> list[Prediction]:
        """Classify an image file, at the most accurate resolution and mode unless others are named.

        This is torch, one image at a time; `san serve` is several times as fast.
        """
        from san_core import classification

        if resolution is None:
            resolution = classification.best_resolution(self.manifest)
        mode = mode or classification.best_mode(self.manifest, check_resolution(resolution))
        file = Path(image) if isinstance(image, str) else image
        return classification.classify(self, file, resolution, mode, top_k)


def save(
    path: Path | str,
    network: ScaleAdaptiveNetwork,
    manifest: Manifest,
    *,
    dtype: torch.dtype | None = None,
    extras: Mapping[str, Tensor | Array] | None = None,
) -> None:
    """Write a bundle atomically; kernels and shared tensors are stored as `dtype` (float32)."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path, dtype = Path(path), dtype or torch.float32
    if manifest.network != network.config:
        raise BundleMismatchError("The manifest describes another network than the one given.")
    calibrated = tuple(sorted(network.calibrated_resolutions, reverse=True))
    known = {
        "format_version": FORMAT_VERSION,
        "calibrated": calibrated,
        "temperatures": tuple(sorted(network.temperatures)),
    }
    manifest = manifest.model_copy(update=known)
    tensors = {_NETWORK + name: t for name, t in network.state_dict().items()}
    tensors |= {_EXTRA + name: torch.as_tensor(t) for name, t in (extras or {}).items()}
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
    aliases = _aliases(stored)
    for name in aliases:
        del stored[name]
    header = {_MANIFEST_KEY: manifest.model_dump_json(), _ALIASES_KEY: json.dumps(aliases)}
    try:
        with replacing(path, durable=True) as draft:
            save_file(stored, draft, metadata=header)
            draft.chmod(0o644)  # safetensors writes for its owner; services are others
    except (OSError, SafetensorError) as error:
        raise BundleError(f"Cannot write the bundle {path}: {error}.") from error


def _aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Name each tensor that equals an earlier one, and that one."""
    import torch

    first: dict[tuple[object, ...], str] = {}
    found = {}
    for name, tensor in tensors.items():
        content = hashlib.sha256(tensor.flatten().view(torch.uint8).numpy().tobytes()).digest()
        known = first.setdefault((tensor.dtype, tensor.shape, content), name)
        if known != name:
            found[name] = known
    return found


def _foreign(path: Path) -> ForeignFileError:
    return ForeignFileError(
        f"{path} is not a bundle: it is not a safetensors file. To make a bundle from a network's "
        "weights, use `san lift`."
    )


def _read_header(path: Path) -> dict[str, Any]:
    """Read the safetensors header, telling foreign, truncated and corrupt files apart."""
    if path.is_dir():
        raise BundleNotFoundError(f"{path} is a folder; name the bundle's .safetensors file in it.")
    if not path.is_file():
        hint = "" if path != DEFAULT_BUNDLE else " (the embedded default bundle is missing)"
        raise BundleNotFoundError(f"There is no bundle at {path}{hint}.")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= _HEADER_LIMIT:
            raise _foreign(path)
        raw = file.read(length)
    if not raw.startswith(b"{"):
        raise _foreign(path)
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
    return _parse_manifest(path, _read_header(path))


def _parse_manifest(path: Path, header: Mapping[str, Any]) -> Manifest:
    text = header.get("__metadata__", {}).get(_MANIFEST_KEY)
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


def read(path: Path | str | None = None, *, mapped: bool = False) -> Bundle:
    """Read a bundle (the embedded default one if no path is given) without torch.

    Its tensors stay as they are stored, half precision too: views of one piece of memory, or of the
    file itself if it is `mapped`. A file that is overwritten in place takes a mapping with it.
    """
    path = Path(path or DEFAULT_BUNDLE)
    _read_header(path)  # tells foreign and truncated files apart
    memory: Array = np.memmap(path, np.uint8, "c") if mapped else np.fromfile(path, np.uint8)
    length = int(memory[:8].view("<u8")[0])
    try:
        header = json.loads(memory[8 : 8 + length].tobytes())
        manifest = _parse_manifest(path, header)
        data = memory[8 + length :]
        arrays = {n: _array(data, entry) for n, entry in header.items() if n != "__metadata__"}
    except (LookupError, TypeError, *_UNREADABLE_JSON) as error:
        raise ForeignFileError(f"{path} is not a readable safetensors file: {error}.") from error
    try:
        aliases = json.loads(header.get("__metadata__", {}).get(_ALIASES_KEY, "{}"))
        arrays |= {name: arrays[known] for name, known in aliases.items()}
    except (LookupError, TypeError, AttributeError, *_UNREADABLE_JSON) as error:
        raise CorruptManifestError(
            f"{path} does not say which of its tensors are the same."
        ) from error
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NonFiniteBundleError(
                f"{path} carries NaN or infinity in {name!r}; it must not be served."
            )
        if name.endswith("running_var") and (array < 0).any():
            raise NonFiniteBundleError(
                f"{path} carries a variance below zero in {name!r}; it must not be served."
            )
    return Bundle(
        manifest,
        extras={n.removeprefix(_EXTRA): t for n, t in arrays.items() if n.startswith(_EXTRA)},
        path=path,
        sha256=hashlib.sha256(memory.data).hexdigest(),
        arrays={n.removeprefix(_NETWORK): t for n, t in arrays.items() if n.startswith(_NETWORK)},
    )


_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2"}
_DTYPES |= {"I8": "|i1", "U8": "|u1", "BOOL": "|b1"}


def _array(data: Array, entry: Mapping[str, Any]) -> Array:
    """A tensor of a safetensors file as a view of its data."""
    start, end = entry["data_offsets"]
    piece, shape = data[start:end], entry["shape"]
    if entry["dtype"] == "BF16":  # the upper half of a float32, which numpy has no name for
        return (piece.view("<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    array = piece.view(_DTYPES[entry["dtype"]]).reshape(shape)
    return array if array.flags.aligned else array.copy()


def load(path: Path | str | None = None, device: str | torch.device = "cpu") -> Bundle:
    """Load a bundle (the embedded default one if no path is given), checked and ready to run.

    The file is memory-mapped. On the CPU float32 tensors stay in the mapping, shared by every
    process that loads the same file; half precision is widened to float32.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        message = "Loading a bundle as a library needs torch: pip install 'san-serve[torch]'."
        raise ModuleNotFoundError(message, name=error.name) from error

    bundle = read(path, mapped=True)
    bundle.network.to(device)
    bundle.extras = {n: torch.from_numpy(t).to(device) for n, t in bundle.extras.items()}
    return bundle


def _make_network(
    manifest: Manifest, arrays: Mapping[str, Array], path: Path | None
) -> ScaleAdaptiveNetwork:
    """Make the network of its tensors; those in float32 stay where they are."""
    import torch

    from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

    network = ScaleAdaptiveNetwork(manifest.network, initialisation=None)
    network.temperatures = manifest.temperatures
    for resolution in manifest.calibrated:
        empty = torch.empty(sum(slot.channels for slot in network.norms))
        network.set_calibrated(resolution, {"running_mean": empty, "running_var": empty})
    state = {n: torch.from_numpy(array) for n, array in arrays.items()}
    state = {n: t.float() if t.is_floating_point() else t for n, t in state.items()}
    _check_fit(path, network.state_dict(), state)
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)
    return network.eval()


def _check_fit(
    path: Path | None, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> None:
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
