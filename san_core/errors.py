"""Every error of san-serve, each a sentence that says what to do.

SanError
├── ArchitectureError          unknown architecture, or one that cannot be lifted or folded
├── ResolutionError            a resolution that cannot be used
├── PreprocessingError         a crop or normalisation that cannot be used
├── BundleError
│   ├── BundleNotFoundError
│   ├── ForeignFileError       not a bundle at all
│   ├── TruncatedBundleError   shorter than its header says
│   ├── CorruptManifestError   the manifest does not follow the format
│   ├── NewerBundleError       written by a newer version of san-serve
│   ├── BundleMismatchError    tensors and manifest disagree
│   └── NonFiniteBundleError   NaN or infinity in a tensor
├── OfficialCheckpointError    a checkpoint of the paper's code that does not fit
└── ImageError
    ├── NotAnImageError
    ├── UnsupportedFormatError
    ├── CorruptImageError
    └── ImageTooLargeError
"""


class SanError(Exception):
    """Root of the tree; its text is meant for people."""


class ArchitectureError(SanError):
    """The architecture is unknown, or cannot be lifted or folded."""


class ResolutionError(SanError):
    """The resolution cannot be used."""


class PreprocessingError(SanError):
    """The crop or the normalisation cannot be used."""


class BundleError(SanError):
    """The bundle cannot be read or written."""


class BundleNotFoundError(BundleError):
    """There is no file at that path."""


class ForeignFileError(BundleError):
    """The file is not a bundle."""


class TruncatedBundleError(BundleError):
    """The file is shorter than its header says."""


class CorruptManifestError(BundleError):
    """The manifest does not follow the format."""


class NewerBundleError(BundleError):
    """The file was written by a newer version of san-serve."""


class BundleMismatchError(BundleError):
    """The tensors are not those the manifest describes."""


class NonFiniteBundleError(BundleError):
    """A tensor carries NaN or infinity."""


class OfficialCheckpointError(SanError):
    """The checkpoint does not fit the paper's published code."""


class ImageError(SanError):
    """The image cannot be used."""


class NotAnImageError(ImageError):
    """The bytes are not an image."""


class UnsupportedFormatError(ImageError):
    """The image has a format that is not decoded here."""


class CorruptImageError(ImageError):
    """The image is broken or ends early."""


class EndlessHeaderError(CorruptImageError):
    """The image has more before its picture than any picture needs."""


class ImageTooLargeError(ImageError):
    """The image has more pixels than allowed."""
