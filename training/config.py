"""The recipe: every choice of a training run, typed, from TOML, overridable field by field."""

import argparse
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from san_core.command_line import add_fields, what_is_wrong
from san_core.errors import ResolutionError
from san_core.network.network_config import MetaLearnerKind
from san_core.resolution import check_trained
from training.errors import RecipeError

RECIPES = Path(__file__).parent / "recipes"

Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Recipe(BaseModel):
    """All settings of a run. The defaults are the paper's for ResNets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # The network.
    architecture: str = Field(
        "resnet18",
        validation_alias=AliasChoices("architecture", "arch"),
        description="torchvision CNN, or timm:NAME",
    )
    resolutions: tuple[int, ...] = Field(
        (224, 192, 160, 128, 96), description="trained resolutions, comma separated"
    )
    meta_learner: MetaLearnerKind = Field(
        MetaLearnerKind.LINEAR, description="what generates the kernels"
    )
    knots: tuple[int, ...] = Field(
        (), description="where a piecewise linear meta learner's slope changes, comma separated"
    )
    generate_stem: bool = Field(True, description="generate the first convolution too")
    shared_batch_norm: bool = Field(False, description="ablation: one batch norm for all")
    initialisation: Literal["kaiming", "official"] = Field(
        "kaiming", description="how the meta learner starts"
    )

    # The loss (Eq. 4) and the optimizer.
    alpha: float = Field(1.0, ge=0.0, description="weight of the cross-entropy")
    beta: float = Field(1.0, ge=0.0, description="weight of scale distillation; 0 turns it off")
    label_smoothing: Share = Field(0.0, description="label smoothing of the cross-entropy")
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="optimizer")
    learning_rate: float = Field(0.1, gt=0.0, description="highest learning rate")
    final_learning_rate: float = Field(0.0, ge=0.0, description="where the half cosine ends")
    warmup_epochs: float = Field(0.0, ge=0.0, description="epochs of linear warm-up")
    momentum: Share = Field(0.9, description="momentum of SGD")
    nesterov: bool = Field(False, description="Nesterov momentum")
    weight_decay: float = Field(1e-4, ge=0.0, description="weight decay")
    decay_norms: bool = Field(True, description="decay batch norm and biases too, as the paper")
    clip_norm: float = Field(0.0, ge=0.0, description="clip the gradient's norm; 0 is off")
    ema_decay: Share = Field(0.0, description="average the weights with this decay; 0 is off")
    epochs: int = Field(120, ge=1, description="passes over the training images")
    batch_size: int = Field(256, ge=1, description="images per process and backward pass")
    accumulate: int = Field(1, ge=1, description="batches whose gradients make one step")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of weights, order and crops")

    # The machine.
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="autocast type"
    )
    channels_last: bool = Field(False, description="channels-last memory layout")
    compile: bool = Field(False, description="torch.compile the main networks")
    workers: int = Field(-1, ge=-1, description="loader processes; -1 chooses, and adapts")

    # The data.
    crop_area: float = Field(0.08, gt=0.0, le=1.0, description="smallest share of a random crop")
    flip: bool = Field(True, description="mirror half of the images")
    crop_ratio: float = Field(0.875, gt=0.0, le=1.0, description="centre crop of evaluation")
    interpolation: Literal["bilinear", "bicubic"] = Field("bilinear", description="resizing")
    limit_images: int = Field(0, ge=0, description="most training images to use; 0 is all")
    max_unreadable: int = Field(100, ge=0, description="unreadable files to tolerate")

    # Distilling a lifted network from its native resolution, without labels.
    temperature: float = Field(1.0, gt=0.0, description="softens teacher and student alike")
    feature_weight: float = Field(
        0.0, ge=0.0, description="weight of matching the head's input, squared"
    )
    temper: bool = Field(True, description="set each resolution's confidence before training")
    mixup: Share = Field(0.0, description="share of images that are blended with another")
    cutmix: Share = Field(0.0, description="share of images with a piece of another")
    always: tuple[int, ...] = Field(
        (), description="resolutions in every batch; none is the smallest"
    )
    drawn: int = Field(1, ge=0, description="other resolutions drawn for a batch")
    between: bool = Field(False, description="draw resolutions between the trained ones too")
    train_slopes: bool = Field(True, description="train W; without, private batch norms only")
    train_kernels: bool = Field(False, description="train b too; the native point then moves")
    blend: bool = Field(True, description="keep the share of training that agrees best in the end")
    hold_out: Share = Field(0.1, description="share of images kept for agreement with the teacher")

    # What one sees and keeps.
    validate_every: int = Field(1, ge=0, description="epochs between validations; 0 is at the end")
    checkpoint_minutes: float = Field(10.0, gt=0.0, description="minutes between checkpoints")
    checkpoint_steps: int = Field(0, ge=0, description="also every so many steps; 0 is off")

    @field_validator("resolutions", "always", "knots", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(int(part) for part in value.split(",") if part.strip())
        return value

    @field_validator("resolutions")
    @classmethod
    def _check(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        try:
            return check_trained(value)
        except ResolutionError as error:
            raise ValueError(str(error)) from error


def recipe_names() -> tuple[str, ...]:
    """Return the names of the recipes that come with the package."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.toml")))


def load_recipe(name_or_path: str) -> dict[str, Any]:
    """Read a recipe's fields by its name or from a TOML file of one's own."""
    path = RECIPES / f"{name_or_path}.toml"
    if not path.is_file():
        path = Path(name_or_path)
    if not path.is_file():
        raise RecipeError(
            f"There is no recipe {name_or_path!r}. Use one of {', '.join(recipe_names())}, "
            "or the path of a TOML file."
        )
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"The recipe {path} is not valid TOML: {error}.") from error


def dump_toml(fields: Mapping[str, Any]) -> str:
    """Write a recipe's fields as TOML, so that a run's own recipe can be used again."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items())


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return json.dumps(value)  # the same as TOML for strings, numbers and booleans


def make_recipe(*layers: dict[str, Any]) -> Recipe:
    """Make a recipe from layers of fields; later ones win."""
    fields: dict[str, Any] = {}
    for layer in layers:
        fields |= layer
    try:
        return Recipe(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"The recipe's field {where!r} {what_is_wrong(first)}.") from error


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --recipe and one option per field; what is not given stays as the recipe has it."""
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"{', '.join(recipe_names())}, or a TOML file"
    )
    add_fields(parser, Recipe, groups={"architecture": "fields of the recipe, for experiments"})
