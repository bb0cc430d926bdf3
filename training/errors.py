"""Errors of training, each a sentence that says what to do.

SanError
├── RecipeError        a recipe or an option that cannot be used
├── DataError          images that are missing, unreadable or do not agree
├── CheckpointError    a run that cannot be resumed or saved
├── DivergedError      the loss is no longer a number
└── PretrainedError    weights that cannot be read, or do not fit the architecture
"""

from san_core.errors import SanError


class RecipeError(SanError):
    """The recipe, or an option that overrides it, cannot be used."""


class DataError(SanError):
    """The images are missing, unreadable beyond the limit, or their classes disagree."""


class CheckpointError(SanError):
    """The run's checkpoint cannot be read, written or continued."""


class DivergedError(SanError):
    """The loss is infinite or not a number."""


class PretrainedError(SanError):
    """Pretrained weights cannot be had, cannot be read, or do not fit the architecture."""
