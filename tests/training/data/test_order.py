import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.order import Order
from training.errors import DataError


@given(
    images=st.integers(24, 300),
    batch=st.integers(1, 4),
    accumulate=st.integers(1, 3),
    processes=st.integers(1, 2),
    seed=st.integers(0, 5),
)
def test_an_epoch_takes_every_image_at_most_once_over_all_processes(
    images: int, batch: int, accumulate: int, processes: int, seed: int
) -> None:
    orders = [Order(images, batch, accumulate, processes, rank, seed) for rank in range(processes)]
    taken = [key for order in orders for part in order.batches(1) for key in part]
    assert len(taken) == len(set(taken)) == orders[0].steps_per_epoch * orders[0].images_per_step
    assert images - len(taken) < orders[0].images_per_step
    assert all(epoch == 1 and 0 <= image < images for epoch, image in taken)


@given(processes=st.integers(2, 4), batch=st.integers(1, 5))
def test_processes_accumulation_and_larger_batches_see_the_same_images_in_a_step(
    processes: int, batch: int
) -> None:
    many = [list(Order(100, batch, 1, processes, r).batches(0)) for r in range(processes)]
    accumulated = list(Order(100, batch, processes).batches(0))
    large = list(Order(100, batch * processes).batches(0))
    for step, images in enumerate(large):
        parts = [of_rank[step] for of_rank in many]
        assert parts == accumulated[step * processes : (step + 1) * processes]
        assert [key for part in parts for key in part] == images


def test_an_epoch_continues_where_it_stopped_and_differs_from_the_next() -> None:
    order = Order(40, 4, 2, seed=3)
    whole = list(order.batches(5))
    assert list(order.batches(5, first_step=2)) == whole[4:]
    assert [i for b in order.batches(6) for _, i in b] != [i for b in whole for _, i in b]


def test_too_few_images_for_a_step() -> None:
    with pytest.raises(DataError, match="Lower --batch-size"):
        Order(7, 8)
