import argparse
import tomllib
from pathlib import Path

import pytest

from san_core.command_line import given_fields
from training.config import (
    Recipe,
    add_recipe_arguments,
    dump_toml,
    load_recipe,
    make_recipe,
    recipe_names,
)
from training.errors import RecipeError


def test_every_recipe_that_comes_along_is_valid() -> None:
    assert {"paper-resnet18", "paper-resnet50", "paper-mobilenet_v2", "small"} <= {*recipe_names()}
    for name in recipe_names():
        make_recipe(load_recipe(name))


def test_the_papers_recipes() -> None:
    resnet = make_recipe(load_recipe("paper-resnet18"))
    assert not resnet.generate_stem
    assert make_recipe(load_recipe("paper-mobilenet_v2")).generate_stem
    mobile = make_recipe(load_recipe("paper-mobilenet_v2"))

    assert resnet.resolutions == mobile.resolutions == (224, 192, 160, 128, 96)
    assert (resnet.learning_rate, resnet.weight_decay, resnet.epochs) == (0.1, 1e-4, 120)
    assert (mobile.learning_rate, mobile.weight_decay, mobile.epochs) == (0.05, 4e-5, 150)
    assert (resnet.alpha, resnet.beta, resnet.batch_size, resnet.momentum) == (1, 1, 256, 0.9)
    assert (resnet.label_smoothing, resnet.clip_norm) == (0, 0)
    shifted = ("paper-resnet18-large", "paper-resnet18-medium")
    assert [make_recipe(load_recipe(name)).resolutions for name in shifted] == [
        (384, 320, 256, 224, 192),
        (320, 256, 224, 192, 160),
    ]


def test_every_field_has_an_option_that_overrides_it() -> None:
    parser = argparse.ArgumentParser()
    add_recipe_arguments(parser)
    known = {action.dest for action in parser._actions}
    assert set(Recipe.model_fields) <= known

    line = "--arch resnet50 --resolutions 64,96 --epochs 3 --no-flip --meta-learner mlp8 --beta 0"
    recipe = make_recipe(load_recipe("small"), given_fields(parser.parse_args(line.split())))

    assert recipe.architecture == "resnet50"
    assert recipe.resolutions == (96, 64)  # kept largest first
    assert (recipe.epochs, recipe.flip, recipe.meta_learner, recipe.beta) == (3, False, "mlp8", 0)
    assert recipe.batch_size == 32  # from the recipe


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"resolutions": (8,)}, "resolutions"),
        ({"speed": 3}, "speed"),
        ({"optimizer": "lion"}, "optimizer"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        make_recipe(fields)


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("epochs = 7\n")
    assert load_recipe(str(path)) == {"epochs": 7}
    path.write_text("epochs = ")
    with pytest.raises(RecipeError, match="TOML"):
        load_recipe(str(path))
    with pytest.raises(RecipeError, match="no recipe 'none'"):
        load_recipe("none")


def test_the_effective_recipe_is_written_so_that_it_can_be_read_again() -> None:
    recipe = make_recipe(load_recipe("tiny"), {"architecture": 'odd "name"'})
    assert make_recipe(tomllib.loads(dump_toml(recipe.model_dump(mode="json")))) == recipe


def test_of_an_option_that_is_given_twice_the_last_one_counts() -> None:
    parser = argparse.ArgumentParser()
    add_recipe_arguments(parser)
    given = given_fields(parser.parse_args(["--resolutions", "48,32", "--resolutions", "48"]))
    assert make_recipe(given).resolutions == (48,)
