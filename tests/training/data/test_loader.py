import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from san_core.preprocessing import Preprocessing
from tests.training.conftest import picture
from training.data.folder import ImageFolder, index_labelled
from training.data.loader import Normaliser, TrainingLoader, centre_batches
from training.data.order import Order
from training.data.samples import TrainingSamples
from training.errors import DataError
from training.runtime.distributed import Group

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    for name in "ab":
        (tmp_path / name).mkdir()
        for index in range(8):
            picture(0, index, side=40).save(tmp_path / name / f"{index}.png")
    (tmp_path / "a" / "3.png").write_bytes(b"not an image")
    (tmp_path / "b" / "5.png").write_bytes((tmp_path / "b" / "4.png").read_bytes()[:90])
    return index_labelled(tmp_path)


def make(folder: ImageFolder, *, workers: int = 0, max_unreadable: int = 100) -> TrainingLoader:
    samples = TrainingSamples(
        folder, (40, 32), seed=0, area=0.3, flip=True, interpolation="bilinear"
    )
    return TrainingLoader(
        samples,
        Order(len(folder), 4),
        device=CPU,
        workers=workers,
        max_unreadable=max_unreadable,
    )


def test_a_batch_has_every_resolution_and_its_full_size(folder: ImageFolder) -> None:
    batches = list(make(folder).epoch(0))
    assert len(batches) == 4
    for batch in batches:
        assert {side: tuple(t.shape) for side, t in batch.pixels.items()} == {
            40: (4, 40, 40, 3),
            32: (4, 32, 32, 3),
        }
        assert batch.labels.tolist() == [folder.labels[i] for i in batch.indices]


def test_unreadable_files_are_named_and_replaced(
    folder: ImageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    loader = make(folder)
    with caplog.at_level(logging.WARNING):
        indices = [i for epoch in (0, 1) for b in loader.epoch(epoch) for i in b.indices]
    assert loader.unreadable.files == {"a/3.png", "b/5.png"}
    assert [r.getMessage().count("a/3.png") for r in caplog.records].count(1) == 1  # once only
    assert len(indices) == 32
    assert not {folder.files[i] for i in indices} & loader.unreadable.files


def test_too_many_unreadable_files_are_an_error(folder: ImageFolder) -> None:
    with pytest.raises(DataError, match=r"2 files cannot be read, more than the 1 .*a/3.png"):
        list(make(folder, max_unreadable=1).epoch(0))


def test_loader_processes_make_the_same_batches(folder: ImageFolder) -> None:
    here, there = make(folder), make(folder, workers=1)
    for mine, theirs in zip(here.epoch(1, 1), there.epoch(1, 1), strict=True):
        assert mine.indices == theirs.indices
        assert all(torch.equal(mine.pixels[s], theirs.pixels[s]) for s in mine.pixels)


def test_waiting_is_measured_and_answered_with_more_processes(folder: ImageFolder) -> None:
    ticks = iter(range(1000))
    samples = TrainingSamples(folder, (32,), seed=0, area=0.3, flip=True, interpolation="bilinear")
    loader = TrainingLoader(
        samples, Order(len(folder), 4), device=CPU, workers=0, clock=lambda: float(next(ticks))
    )
    list(loader.epoch(0))
    assert loader.wait_seconds == 5.0  # four batches and the end, a tick each
    loader.adapt(0.9)
    assert loader.workers == 0  # the number was asked for

    chosen = make(folder, workers=-1)
    before = chosen.workers
    chosen.adapt(0.05)
    assert chosen.workers == before


def test_pixels_are_normalised_as_the_service_does() -> None:
    preprocessing = Preprocessing()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    expected = torch.from_numpy(preprocessing.normalise(pixels)).permute(0, 3, 1, 2)
    for channels_last in (False, True):
        made = Normaliser(preprocessing, CPU, channels_last=channels_last)(torch.tensor(pixels))
        torch.testing.assert_close(made, expected, check_stride=False)
        assert made.is_contiguous(
            memory_format=torch.channels_last if channels_last else torch.contiguous_format
        )


def test_evaluation_reads_each_image_once_in_one_process(folder: ImageFolder) -> None:
    preprocessing = Preprocessing()
    seen = []
    for rank in range(3):
        group = Group(rank, 3, CPU)
        for batch in centre_batches(folder, (32,), preprocessing, group, batch_size=4, workers=0):
            seen += batch.indices
            with Image.open(folder.path(batch.indices[0])) as image:
                pixels = preprocessing.to_pixels(image.convert("RGB"), 32)
            assert np.array_equal(batch.pixels[32][0].numpy(), pixels)
    readable = [i for i, f in enumerate(folder.files) if f not in {"a/3.png", "b/5.png"}]
    assert sorted(seen) == readable
