"""Contenders take turns, and each call is timed on its own."""

from benchmarks.driving.turns import in_turns


class Clock:
    """Stands still but for what is called."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_order_alternates_and_every_call_is_timed() -> None:
    clock = Clock()
    order: list[str] = []

    def work(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds

    found = in_turns(
        {"slow": lambda: work("slow", 0.5), "fast": lambda: work("fast", 0.25)},
        rounds=2,
        seconds=1.0,
        clock=clock,
    )
    warm_up = ["slow", "fast"]
    assert order == [*warm_up, *["slow"] * 2, *["fast"] * 4, *["fast"] * 4, *["slow"] * 2]
    assert found == {"slow": [[500.0] * 2] * 2, "fast": [[250.0] * 4] * 2}


def test_a_call_longer_than_its_turn_is_still_made() -> None:
    clock = Clock()

    def work() -> None:
        clock.now += 3.0

    assert in_turns({"one": work}, rounds=3, seconds=0.1, clock=clock) == {"one": [[3000.0]] * 3}
