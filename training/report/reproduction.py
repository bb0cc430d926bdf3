"""The paper at small scale: SAN, baselines and ablations trained one by one, resumably."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from san_core.bundle import load, read_manifest
from san_core.mode import Mode
from training.config import Recipe
from training.data.folder import index_for_classes, validation_root
from training.data.loader import cores
from training.errors import RecipeError
from training.evaluation.calibrate import calibrate_all, calibration_images
from training.evaluation.evaluate import evaluate
from training.loop import runlog
from training.report import evaluation_page
from training.run import MACHINE
from training.runtime.distributed import Group

BUNDLE = "bundle.safetensors"

# What the variants differ in.
_VARIED = frozenset({"resolutions", "meta_learner", "beta", "shared_batch_norm"})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Variant:
    """One of the networks that are compared."""

    name: str
    title: str
    options: tuple[str, ...] = ()


def variants(resolutions: Sequence[int]) -> list[Variant]:
    """Return all networks of the comparison, the most telling first."""
    ours = [
        Variant("san", "SAN"),
        # Table 3 takes both ablations without distillation, so that batch norm alone differs.
        Variant("no_distillation", "SAN without distillation", ("--beta", "0")),
        Variant(
            "shared_batch_norm",
            "SAN without distillation, shared batch norm",
            ("--beta", "0", "--shared-batch-norm"),
        ),
    ]
    baselines = [
        Variant(
            f"baseline_{side}", f"trained at {side}", ("--baseline", "--resolutions", str(side))
        )
        for side in resolutions
    ]
    return ours[:1] + baselines + ours[1:]


def check_same(folder: Path, wanted: Sequence[Variant], recipe: Recipe) -> None:
    """Refuse to mix networks of this recipe with finished ones of another."""
    for variant in wanted:
        path = folder / variant.name / BUNDLE
        if not path.is_file():
            continue
        # Through the recipe, so that an option younger than the run has its default.
        then = Recipe(**read_manifest(path).provenance["recipe"])
        for name in Recipe.model_fields.keys() - MACHINE - _VARIED:
            if getattr(then, name) != getattr(recipe, name):
                raise RecipeError(
                    f"{path.parent} was trained with {name} = {getattr(then, name)}, not "
                    f"{getattr(recipe, name)}. Choose another --output, or the same options."
                )


@dataclass
class _Job:
    variant: Variant
    process: subprocess.Popen[bytes]


def _start(
    variant: Variant, data: Path, folder: Path, options: Sequence[str], threads: int
) -> _Job:
    run = folder / variant.name
    run.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "san_cli", "train", "--data", str(data)]
    command += [*options, *variant.options]
    command += ["--output", str(run), "--resume", "--export", str(run / BUNDLE)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with (run / "train.log").open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    return _Job(variant, process)


def _standing(folder: Path, variant: Variant) -> str:
    steps = list(runlog.read(folder / variant.name / runlog.FILE_NAME))
    return f"{variant.name} at step {steps[-1]['step']}" if steps else f"{variant.name} starting"


def train_all(
    data: Path,
    folder: Path,
    wanted: Sequence[Variant],
    options: Sequence[str],
    *,
    jobs: int = 1,
    every: float = 60.0,
) -> list[Variant]:
    """Train what is not finished yet, `jobs` at a time; return the variants that failed.

    Each is a process of its own that resumes from its checkpoint, so that this may be interrupted
    and called again at any time.
    """
    waiting = [v for v in wanted if not (folder / v.name / BUNDLE).is_file()]
    threads = max(1, cores() // jobs)
    running: list[_Job] = []
    failed: list[Variant] = []
    shown = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), data, folder, options, threads))
                log.info("Training %s.", running[-1].variant.title)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].process.wait(timeout=1.0)
            for job in [j for j in running if j.process.poll() is not None]:
                running.remove(job)
                if job.process.returncode:
                    failed.append(job.variant)
                log.info(
                    "%s: %s.", job.variant.title, "failed" if job.process.returncode else "done"
                )
            if time.monotonic() - shown >= every:
                shown = time.monotonic()
                log.info("; ".join(_standing(folder, job.variant) for job in running))
    finally:
        for job in running:  # each writes its checkpoint on SIGTERM
            job.process.terminate()
        for job in running:
            job.process.wait()
    return failed


def _evaluated_at(path: Path) -> set[int]:
    if not path.is_file():
        return set()
    return {entry["resolution"] for entry in json.loads(path.read_text())["entries"]}


def evaluate_all(
    data: Path,
    folder: Path,
    wanted: Sequence[Variant],
    tests: Sequence[int],
    group: Group,
    *,
    calibration: int = 1000,
    workers: int = -1,
) -> None:
    """Evaluate every trained network that is not evaluated yet, in all ways the page needs."""
    for variant in wanted:
        target = folder / variant.name / "evaluation"
        if _evaluated_at(target / "evaluation.json") >= {*tests}:
            continue
        log.info("Evaluating %s.", variant.title)
        bundle = load(folder / variant.name / BUNDLE)
        bundle.network.to(group.device)
        images = index_for_classes(validation_root(data), bundle.manifest.classes)
        # The modes are told apart for SAN itself only, as in the paper.
        modes, unlabelled = [Mode.PROXY], None
        if variant.name == "san":
            modes = list(Mode)
            how = bundle.manifest.preprocessing
            unlabelled = calibration_images(data, calibration, how, group.device, workers=workers)
            calibrate_all(bundle.network, tests, unlabelled)
        found = evaluate(
            bundle, images, tests, modes, group, full=True, images=unlabelled, workers=workers
        )
        evaluation_page.write(found, target)
