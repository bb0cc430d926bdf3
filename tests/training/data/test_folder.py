from pathlib import Path

import pytest

from training.data.folder import (
    UNLABELLED,
    index_for_classes,
    index_labelled,
    index_training,
    index_unlabelled,
    validation_root,
)
from training.errors import DataError


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_classes_are_sorted_and_files_have_their_labels(tmp_path: Path) -> None:
    touch(tmp_path, "b/2.jpg", "b/1.PNG", "a/deep/x.webp", "a/notes.txt", "a/.hidden.jpg")
    folder = index_labelled(tmp_path)
    assert folder.classes == ("a", "b")
    assert folder.files == ("a/deep/x.webp", "b/1.PNG", "b/2.jpg")
    assert folder.labels == (0, 1, 1)
    assert folder.path(2) == tmp_path / "b" / "2.jpg"


def test_training_and_validation_must_have_the_same_classes(tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", "val/cat/1.jpg", "val/cow/1.jpg")
    with pytest.raises(DataError, match="missing: dog; unexpected: cow"):
        index_training(tmp_path)
    touch(tmp_path, "val/dog/1.jpg")
    with pytest.raises(DataError, match="unexpected: cow"):
        index_training(tmp_path)


def test_a_folder_without_train_is_all_training(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg")
    training, validation = index_training(tmp_path)
    assert len(training) == 2
    assert validation is None
    assert validation_root(tmp_path) == tmp_path


def test_no_images_is_an_error_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for index in (index_labelled, index_unlabelled):
        with pytest.raises(DataError, match=str(tmp_path)):
            index(tmp_path)
        with pytest.raises(DataError, match="nowhere"):
            index(tmp_path / "nowhere")


def test_unlabelled_images_may_lie_anywhere(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "x/y/2.jpg")
    folder = index_unlabelled(tmp_path)
    assert folder.files == ("1.jpg", "x/y/2.jpg")
    assert folder.labels == (UNLABELLED, UNLABELLED)
    assert folder.classes == ()


def test_a_limited_folder_keeps_every_class(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{c}/{i:02}.jpg" for c in "abcd" for i in range(20)))
    folder = index_labelled(tmp_path)
    assert sorted(folder.limited(8).labels) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert folder.limited(0) is folder
    assert folder.limited(1000) is folder


def test_labels_for_a_networks_classes(tmp_path: Path) -> None:
    touch(tmp_path, "named/b/1.jpg", "numbered/0002/1.jpg")
    touch(tmp_path, "wordnet/n01440764/1.jpg", "wordnet/n01443537/1.jpg")
    classes = ("a", "b", "c")
    assert index_for_classes(tmp_path / "named", classes).labels == (1,)
    assert index_for_classes(tmp_path / "numbered", classes).labels == (2,)
    assert index_for_classes(tmp_path / "wordnet", ("x", "y")).labels == (0, 1)
    with pytest.raises(DataError, match="unexpected: n01440764"):
        index_for_classes(tmp_path / "wordnet", classes)


def test_numbers_are_numbers_however_they_are_written(tmp_path: Path) -> None:
    touch(tmp_path, *(f"short/{number}/1.jpg" for number in (0, 1, 2, 10)))
    classes = tuple("abcdefghijk")
    assert index_for_classes(tmp_path / "short", classes).labels == (0, 1, 10, 2)
    touch(tmp_path, *(f"imagenet/{number:04}/1.jpg" for number in range(1000)))
    thousand = tuple(f"name {number}" for number in range(1000))
    assert index_for_classes(tmp_path / "imagenet", thousand).labels == tuple(range(1000))


def test_other_names_are_no_classes_even_if_as_many(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "cow/1.jpg")
    with pytest.raises(DataError, match="missing: a, b; unexpected: cat, cow"):
        index_for_classes(tmp_path, ("a", "b"))
    touch(tmp_path, "mixed/cat/1.jpg", "mixed/0/1.jpg")
    with pytest.raises(DataError, match="missing: dog; unexpected: 0"):
        index_for_classes(tmp_path / "mixed", ("cat", "dog"))


def test_training_further_takes_labels_in_the_networks_order(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{part}/{name}/1.jpg" for part in ("train", "val") for name in "abc"))
    training, validation = index_training(tmp_path, ("c", "a", "b"))
    assert validation is not None
    for folder in (training, validation):
        assert folder.classes == ("c", "a", "b")
        assert [folder.classes[label] for label in folder.labels] == [f[0] for f in folder.files]
    with pytest.raises(DataError, match="no images of d"):
        index_training(tmp_path, ("c", "a", "b", "d"))
