import argparse
import sys
from pathlib import Path

import pytest
import torch

from san_cli.__main__ import COMMANDS, dispatch
from san_core.bundle import Bundle, Manifest
from san_core.mode import Mode
from san_core.preprocessing import Preprocessing
from tests.training.conftest import ARCHITECTURE, CLASSES
from training.commands import report
from training.config import Recipe, make_recipe
from training.errors import RecipeError
from training.evaluation.accuracy import Score
from training.evaluation.evaluate import Entry, Evaluation
from training.export import export, provenance
from training.report import comparison, reproduction
from training.report.comparison import difference
from training.report.reproduction import Variant, variants
from training.run import new_network
from training.runtime.distributed import Group

N = 1000


def cells(values: dict[tuple[int, int], float]) -> dict[tuple[int, int], Score]:
    return {key: Score(N, round(N * share), N) for key, share in values.items()}


def test_the_eight_networks_of_the_comparison() -> None:
    wanted = variants((128, 112, 96, 80, 64))
    assert [v.name for v in wanted][:2] == ["san", "baseline_128"]
    assert len({v.name for v in wanted}) == 8
    assert ("--beta", "0", "--shared-batch-norm") in [v.options for v in wanted]


def test_findings_say_yes_where_the_paper_is_right_and_no_where_not() -> None:
    sides = (64, 32)
    every = [(row, test) for row in sides for test in sides]
    low = cells(dict.fromkeys(every, 0.5))
    high = cells(dict.fromkeys(every, 0.7))
    assert comparison.diagonal(high, low, sides).agrees
    assert "Clear at 64, 32" in comparison.diagonal(high, low, sides).outcome
    assert not comparison.diagonal(low, high, sides).agrees
    assert "Below the baseline at 64, 32" in comparison.diagonal(low, high, sides).outcome
    assert comparison.off_diagonal(high, low, sides, sides).agrees
    assert not comparison.off_diagonal(low, high, sides, sides).agrees
    small_end = cells(dict.fromkeys(every, 0.5) | {(32, 32): 0.6})
    assert comparison.distillation(small_end, low, sides).agrees
    assert not comparison.distillation(low, small_end, sides).agrees
    harmful = cells(dict.fromkeys(every, 0.5) | {(64, 64): 0.3, (32, 32): 0.6})
    assert not comparison.distillation(harmful, low, sides).agrees
    assert comparison.shared_batch_norm(high, low, sides).agrees
    assert not comparison.shared_batch_norm(low, low, sides).agrees
    close = {(48, "proxy"): Score(N, 500, N), (48, "ideal"): Score(N, 510, N)}
    close[48, "data_free"] = Score(N, 505, N)
    assert comparison.modes(close, sides).agrees
    apart = close | {(48, "ideal"): Score(N, 600, N)}
    assert not comparison.modes(apart, sides).agrees


def test_differences_carry_their_uncertainty() -> None:
    clear = difference(Score(N, 600, N), Score(N, 500, N))
    assert str(clear) == "+10.0 ± 4.3"
    assert clear.is_clear
    assert not difference(Score(N, 510, N), Score(N, 500, N)).is_clear


def test_finished_runs_are_skipped_and_failures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    real = reproduction.subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        name = Path(command[command.index("--output") + 1]).name
        started.append(name)
        code = "import sys; sys.exit(3)" if name == "bad" else "pass"
        return real([sys.executable, "-c", code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(reproduction.subprocess, "Popen", popen)
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / reproduction.BUNDLE).write_bytes(b"")
    wanted = [Variant(name, name) for name in ("done", "bad", "good")]
    failed = reproduction.train_all(tmp_path, tmp_path, wanted, [], jobs=2)
    assert sorted(started) == ["bad", "good"]
    assert [v.name for v in failed] == ["bad"]


def finished(folder: Path, recipe: Recipe) -> None:
    """Write what a finished run of the recipe leaves."""
    network = new_network(recipe, 2)
    told = provenance(recipe)
    export(
        folder / reproduction.BUNDLE,
        network,
        classes=("a", "b"),
        preprocessing=Preprocessing(),
        told=told,
    )


def test_finished_runs_of_other_options_are_not_taken_for_these(tmp_path: Path) -> None:
    recipe = make_recipe({"architecture": ARCHITECTURE, "resolutions": (48, 32), "epochs": 2})
    wanted = variants(recipe.resolutions)
    alone = {"resolutions": (48,), "meta_learner": "private", "beta": 0.0, "workers": 0}
    finished(tmp_path / "baseline_48", make_recipe(recipe.model_dump(), alone))
    reproduction.check_same(tmp_path, wanted, recipe)
    for name, value in (("epochs", 3), ("seed", 7), ("limit_images", 100)):
        other = make_recipe(recipe.model_dump(), {name: value})
        with pytest.raises(RecipeError, match=f"trained with {name} = .*, not {value}"):
            reproduction.check_same(tmp_path, wanted, other)


def test_more_test_resolutions_are_evaluated_and_the_same_are_not(
    data: Path, tmp_path: Path, alone: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def evaluate(
        _bundle: object, _images: object, tests: tuple[int, ...], *_: object, **__: object
    ):
        seen.append(tests)
        entries = [Entry(side, Mode.PROXY, Score(9, 5, 9), False) for side in tests]
        return Evaluation("tiny", (48, 32), tests, entries)

    monkeypatch.setattr(reproduction, "evaluate", evaluate)
    bundle = Bundle(Manifest.model_construct(classes=CLASSES), torch.nn.Identity())  # type: ignore[arg-type]
    monkeypatch.setattr(reproduction, "load", lambda _: bundle)
    wanted = [Variant("baseline_48", "trained at 48")]
    for tests in ((48, 32), (48, 32), (48,), (56, 48, 32)):
        reproduction.evaluate_all(data, tmp_path, wanted, tests, alone)
    assert seen == [(48, 32), (56, 48, 32)]


def test_the_page_repeats_the_options_that_were_given() -> None:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    line = (
        "--data /x/pictures --output /y --recipe tiny --resolutions 48,32 --tests 56,40 --epochs 2"
    )
    more = "--seed 3 --limit-images 24 --jobs 2"
    args = parser.parse_args(["reproduce", *line.split(), *more.split()])
    assert report._command(args) == (
        "san report reproduce --data pictures --output DIR --recipe tiny --resolutions 48,32 "
        "--tests 56,40 --epochs 2 --seed 3 --limit-images 24"
    )


@pytest.mark.slow
def test_one_command_trains_evaluates_and_writes_the_page(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The runs happen in this process: eight interpreters would only load torch eight times.
    def train_here(
        data: Path, folder: Path, wanted: list[Variant], options: list[str], **_: object
    ) -> list[Variant]:
        for variant in wanted:
            run = folder / variant.name
            where = ["--data", str(data), "--output", str(run), "--quiet", "--workers", "0"]
            small = ["--arch", ARCHITECTURE, "--batch-size", "12"]
            line = [*where, *options, *small, *variant.options]
            assert (
                dispatch(["train", *line, "--export", str(run / reproduction.BUNDLE)], COMMANDS)
                == 0
            )
        return []

    monkeypatch.setattr(report, "train_all", train_here)
    torch.manual_seed(0)
    page = tmp_path / "docs" / "reproduction.md"
    line = f"reproduce --data {data} --output {tmp_path / 'runs'} --recipe tiny --epochs 1"
    more = f"--resolutions 48,32 --tests 56,40 --limit-images 24 --markdown {page}"
    assert dispatch(["report", *line.split(), *more.split()], COMMANDS) == 0
    text = page.read_text()
    for expected in ("| **no** |", "Table 1, left", "Table 3, right", "Table 6", "shufflenet"):
        assert expected in text
    assert (page.parent / "reproduction-envelope.png").is_file()
    assert str(tmp_path) not in text  # no paths of this machine


def test_tests_lie_on_between_and_around_the_trained_resolutions() -> None:
    expected = (144, 128, 120, 112, 104, 96, 88, 80, 72, 64, 48)
    assert report._tests((128, 112, 96, 80, 64)) == expected
    assert report._tests((64, 48, 32)) == (80, 64, 56, 48, 40, 32)  # 16 is below what is allowed
