"""A new bundle beside the one that serves: what it takes to be promoted, and to be taken back."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from service.errors import NoCandidateError, PromotionError, ReloadError
from service.observability.ledger import Ledger
from service.request.request import Idle, Outcome, Request
from service.request.terms import Terms
from service.serving.quality.idle_sampler import Sample
from service.serving.quality.rollout import Parts, Rollout, Stage
from service.serving.quality.verdict import Bounds, Share
from tests.service.fakes import FakeClock

CLASSES = ("cat", "dog")


def bundle(name, version="1", says=0, accuracy=0.7, classes=CLASSES, cache=("fast", "best")):
    return SimpleNamespace(
        sha256=name,
        says=says,
        manifest=SimpleNamespace(name=name, version=version, classes=classes),
        frontier=tuple(SimpleNamespace(point=point) for point in ("fast", "best", "luxury")),
        cache=cache,
        idle_host=SimpleNamespace(look=lambda *_: Idle(feasible=True, accuracy=accuracy)),
    )


class Scene:
    """A service of which only the bundles are real."""

    def __init__(self, candidate):
        self.serving = bundle("old")
        self.candidate = candidate
        self.retired = []
        self.points = []
        self.clock = FakeClock()
        self.ledger = Ledger()
        self.admission = SimpleNamespace()
        decoder = SimpleNamespace(header=self.header)
        self.rollout = Rollout(
            Parts(self.deploy, self.install, self.retired.append, lambda: self.serving),
            self.rerun,
            decoder,
            self.admission,
            self.ledger,
            self.clock,
            fraction=1.0,
            bounds=Bounds(),
            watch_ms=60_000,
        )

    async def deploy(self, path, beside):
        assert beside
        return self.candidate

    def install(self, deployment):
        self.serving = deployment

    async def header(self, *_):
        return None

    async def rerun(self, deployment, point, _image):
        self.points.append(point)
        scores = np.zeros(2, np.float32)
        scores[deployment.says] = 1.0
        return scores, 2.0

    def look(self, pictures):
        async def many():
            for _ in range(pictures):
                await self.rollout.compare(Sample(b"x", 96, 0, self.serving.sha256, 20.0))

        asyncio.run(many())

    def load(self, share=0.0):
        asyncio.run(self.rollout.load(Path("x"), share))

    def promote(self, **how):
        asyncio.run(self.rollout.promote(**how))

    def serve(self, who, n, *, met):
        for _ in range(n):
            self.rollout.observe(
                Request("id", Terms(budget_ms=20.0), outcome=Outcome.ANSWERED, met=met, bundle=who)
            )


def results(scene):
    return [event.result for event in scene.rollout.events]


def test_a_candidate_that_agrees_is_promoted_and_the_old_bundle_kept_for_a_while():
    scene = Scene(bundle("new", "2"))
    scene.load()
    assert scene.rollout.stage is Stage.SHADOW
    with pytest.raises(PromotionError, match="0 of the 50 pictures"):
        scene.promote()
    scene.look(50)
    assert scene.ledger.candidate == {"same": 50}
    scene.promote()
    assert scene.serving.sha256 == "new"
    assert not scene.retired
    scene.clock.advance(59_000)
    scene.rollout.check()
    assert not scene.retired
    scene.clock.advance(2_000)
    scene.rollout.check()
    assert [old.sha256 for old in scene.retired] == ["old"]
    assert results(scene) == ["loaded", "promoted", "retired"]
    assert scene.ledger.reloads == {"promoted": 1}


def test_a_worse_one_is_refused_and_says_why():
    scene = Scene(bundle("worse", says=1))
    scene.load()
    scene.look(60)
    with pytest.raises(PromotionError, match=r"agrees with the other bundle on 0.0%") as refused:
        scene.promote()
    assert refused.value.members()["reasons"]
    assert scene.serving.sha256 == "old"
    asyncio.run(scene.rollout.drop())
    assert [gone.sha256 for gone in scene.retired] == ["worse"]
    with pytest.raises(NoCandidateError):
        scene.promote()


def test_one_that_would_serve_less_accuracy_is_refused():
    scene = Scene(bundle("poor", accuracy=0.6))
    scene.load()
    scene.look(50)
    with pytest.raises(PromotionError, match=r"0\.600, against 0\.700"):
        scene.promote()


def test_a_canary_serves_the_same_clients_and_goes_when_it_disagrees():
    scene = Scene(bundle("worse", says=1))
    scene.load(share=0.3)
    rollout = scene.rollout
    chosen = {c: rollout.deployment_for(c).sha256 for c in map(str, range(500))}
    share = sum(who == "worse" for who in chosen.values()) / len(chosen)
    assert 0.2 < share < 0.4
    assert chosen == {c: rollout.deployment_for(c).sha256 for c in chosen}
    scene.look(25)
    rollout.check()
    assert rollout.stage is Stage.NONE
    assert rollout.deployment_for("0") is scene.serving
    assert scene.ledger.reloads == {"rolled_back": 1}
    assert results(scene) == ["loaded", "rolled_back"]


def test_a_promoted_bundle_that_breaks_its_promises_is_taken_back():
    scene = Scene(bundle("new"))
    scene.load()
    scene.look(50)
    scene.promote()
    scene.serve("old", 100, met=False)  # its own last requests do not count against the new one
    scene.serve("new", 50, met=True)
    scene.rollout.check()
    assert scene.serving.sha256 == "new"
    scene.serve("new", 50, met=False)
    scene.rollout.check()
    assert scene.serving.sha256 == "old"
    assert [gone.sha256 for gone in scene.retired] == ["new"]
    assert "kept 50.0% of 100 budgets" in scene.rollout.events[-1].why


def test_feedback_takes_it_back_too():
    scene = Scene(bundle("new"))
    scene.load()
    scene.promote(force=True)
    for _ in range(60):
        scene.rollout.observe_feedback("new", right=False, expected=0.7)
        scene.rollout.observe_feedback("old", right=True, expected=0.7)
    assert scene.rollout.facts.feedback == Share(0, 60)
    scene.rollout.check()
    assert scene.serving.sha256 == "old"


def test_after_its_promotion_both_bundles_are_still_compared():
    scene = Scene(bundle("worse", says=1))
    scene.load()
    scene.promote(force=True)
    scene.look(25)
    scene.rollout.check()
    assert scene.serving.sha256 == "old"


def test_a_reload_ends_it_and_a_watched_bundle_is_not_replaced_by_another_candidate():
    scene = Scene(bundle("new"))
    scene.load()
    scene.rollout.replaced()
    assert scene.rollout.stage is Stage.NONE
    scene.load()
    scene.promote(force=True)
    with pytest.raises(ReloadError, match="watched"):
        scene.load()


@pytest.mark.parametrize(
    ("cache", "points"),
    [
        (("fast", "best", "luxury"), ["best", "best"]),
        (("fast",), ["fast", "fast"]),
        (("luxury",), ["best", "luxury"]),
        ((), []),
    ],
)
def test_both_answer_at_the_best_point_that_both_have_ready(cache, points):
    scene = Scene(bundle("new", "2", cache=cache))
    scene.load()
    scene.look(1)
    assert scene.points == points
    assert scene.rollout.facts.agreement.whole == len(points) // 2


def test_a_candidate_that_serves_nobody_is_in_no_hurry():
    scene = Scene(bundle("new"))
    scene.load()
    shadow = scene.rollout.patience_s
    scene.load(share=0.2)
    assert scene.rollout.patience_s < shadow
