"""The page's arithmetic agrees with the service's."""

from __future__ import annotations

import pytest

from san_core.preprocessing import Preprocessing


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (64, 64), (4032, 3024)])
def test_the_page_crops_as_the_preprocessing_does(page, width, height):
    box = page.evaluate(
        "async ([w, h]) => (await import('/assets/cards/crop.js')).cropBox(w, h, 0.875)",
        [width, height],
    )
    left, top, right, bottom = Preprocessing().box(width, height, 224)
    assert (box["left"], box["top"]) == pytest.approx((left, top))
    assert box["side"] == pytest.approx(right - left)
    assert box["side"] == pytest.approx(bottom - top)


def test_slider_positions_and_budgets_match(page):
    budgets = page.evaluate(
        """async () => {
          const { budgetAt, positionOf } = await import("/assets/basics/scale.js");
          const positions = Array.from({ length: 251 }, (_, i) => 4 * i);
          return positions.map((p) => [p, budgetAt(p), positionOf(budgetAt(p))]);
        }"""
    )
    values = [budget for _, budget, _ in budgets]
    assert values[0] == 1
    assert values[-1] == 250
    assert values == sorted(values)
    assert all(abs(position - back) <= 10 for position, _, back in budgets)


def test_more_budget_never_buys_less_accuracy(page):
    accuracies = page.evaluate(
        """async () => {
          const { choose } = await import("/assets/calls/choice.js");
          const point = (resolution, ms, top1, cold_ms) => ({
            resolution, mode: "proxy", precision: "float", frontier: true,
            smallest_budget_ms: ms, cold_ms, accuracy: { top1 },
          });
          const points = [point(32, 2, 0.3, 0), point(64, 8, 0.5, 40), point(96, 20, 0.6, 0)];
          return [1, 2, 5, 10, 20, 50, 100].map((budget) => {
            const { point, fits } = choose(points, budget);
            return [budget, point.accuracy.top1, fits];
          });
        }"""
    )
    tops = [top1 for _, top1, _ in accuracies]
    assert tops == sorted(tops)
    assert accuracies[0] == [1, 0.3, False]
    assert accuracies[3] == [10, 0.3, True]
    assert accuracies[4] == [20, 0.6, True]


def test_of_points_that_are_about_as_accurate_the_faster_one_is_shown(page):
    shown = page.evaluate(
        """async () => {
          const { servedSizes } = await import("/assets/calls/choice.js");
          const point = (resolution, precision, ms, top1, frontier = true, cached = true) => ({
            resolution, precision, mode: "proxy", frontier, cached, smallest_budget_ms: ms,
            cold_ms: 0, accuracy: { top1 },
          });
          return servedSizes([
            point(224, "float", 12, 0.745), point(224, "int8", 6, 0.743),
            point(96, "int8", 3, 0.4), point(96, "float", 5, 0.5),
            point(64, "float", 1, 0.3, false), point(64, "int8", 2, 0.2),
          ]).map((p) => [p.resolution, p.precision]);
        }"""
    )
    assert shown == [[64, "int8"], [96, "float"], [224, "int8"]]


def test_a_load_plan_is_bounded_whatever_is_typed(page):
    plans = page.evaluate(
        """async () => {
          const { boundedPlan } = await import("/assets/panels/load-stats.js");
          return [[1e9, 1e9], [-3, 0], [NaN, NaN], [50, 8]].map(([rate, seconds]) =>
            boundedPlan({ rate, seconds, budgets: [] }));
        }"""
    )
    assert all(1 <= plan["rate"] <= 200 and 1 <= plan["seconds"] <= 30 for plan in plans)
    assert plans[0]["requests"] == 6000
    assert plans[3]["requests"] == 400


def test_quantiles_are_by_rank(page):
    found = page.evaluate(
        """async () => {
          const { quantile } = await import("/assets/panels/load-stats.js");
          const values = Array.from({ length: 100 }, (_, i) => 100 - i);
          return [0, 0.5, 0.99, 1].map((q) => quantile(values, q)).concat([quantile([], 0.5)]);
        }"""
    )
    assert found == [1, 50, 99, 100, None]
