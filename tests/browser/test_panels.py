"""Sweep, weights, history and load."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.service_in_slow_motion import BUILD_MS, RUN_MS, serving

REFUSALS = ("status of 429", "status of 503")


def milliseconds(text: str) -> float:
    found = re.search(r"([\d.]+)\s*ms", text)
    assert found, text
    return float(found.group(1))


def test_a_sweep_shows_every_resolution_and_where_the_answer_changes(page):
    page.get_by_role("button", name="Run the sweep").click()
    cells = page.locator("#strip li")
    expect(page.locator("#sweep-summary")).to_have_text(
        "The answer changes once; from 64 px on it is “traffic light”."
    )
    assert [int(cell.get_attribute("data-resolution")) for cell in cells.all()] == list(RUN_MS)
    labels = [cell.locator(".label").inner_text() for cell in cells.all()]
    assert labels == ["matchstick", "matchstick", "traffic light", "traffic light"]
    assert [cell.locator("canvas").get_attribute("width") for cell in cells.all()] == [
        str(resolution) for resolution in RUN_MS
    ]
    changed = page.locator("#strip li.changed")
    expect(changed).to_have_count(1)
    expect(changed).to_have_attribute("data-resolution", "64")
    for cell, expected in zip(cells.all(), RUN_MS.values(), strict=True):
        assert milliseconds(cell.locator(".meta").first.inner_text()) >= expected
    expect(page.locator("#history .past")).to_have_count(5)


def test_a_sweep_waits_when_the_service_is_busy(page, visitor):
    visitor.allowed = ("status of 429",)
    refused = []

    def refuse_twice(route):
        if len(refused) == 2:
            return route.fallback()
        refused.append(route.request.url)
        body = {"title": "Overloaded", "detail": "Not ready.", "retry_after_ms": 300}
        return route.fulfill(
            status=429, content_type="application/problem+json", body=json.dumps(body)
        )

    page.route("**/classify*", refuse_twice)
    page.get_by_role("button", name="Run the sweep").click()
    expect(page.locator("#sweep-summary")).to_contain_text("asked again in 1 s")
    expect(page.locator("#sweep-summary")).to_contain_text("The answer changes once")
    expect(page.locator("#strip li.pending")).to_have_count(0)
    assert refused[0] == refused[1]


def test_another_picture_clears_the_strip(page):
    page.get_by_role("button", name="Run the sweep").click()
    expect(page.locator("#strip li.pending")).to_have_count(0)
    page.get_by_role("button", name="Example: a rocket at launch").click()
    expect(page.locator("#sweep-scroll")).to_be_hidden()


def test_cold_weights_cost_what_cached_ones_do_not(page):
    page.get_by_role("button", name="Time a cold start").click()
    versus = page.locator(".versus")
    expect(versus).to_contain_text("generating the weights took 60")
    cold, cached = (milliseconds(text) for text in versus.locator("> span").all_inner_texts())
    assert cold >= cached + 0.9 * BUILD_MS
    assert cached < BUILD_MS
    expect(versus).to_contain_text("(weights generated)")
    expect(versus).to_contain_text("(weights cached)")


def test_weights_can_be_evicted_and_warmed(page):
    row = page.locator("#weights-table tr[data-resolution='48']")
    expect(row).to_have_attribute("data-state", re.compile("cached|cold"))
    if row.get_attribute("data-state") == "cold":
        row.get_by_role("button", name="Warm").click()
    expect(row).to_have_attribute("data-state", "cached")
    row.get_by_role("button", name="Evict").click()
    expect(row).to_have_attribute("data-state", "cold")
    expect(row).to_contain_text("not cached")
    row.get_by_role("button", name="Warm").click()
    expect(row).to_have_attribute("data-state", "cached")
    expect(row).to_contain_text("60")
    expect(row).to_contain_text("4.0\u202fMB")
    expect(page.locator("#weights-summary")).to_contain_text("lookups hit")


def test_a_request_that_found_cold_weights_says_so(page):
    page.locator("#pin").select_option("32")
    expect(page.locator(".tag.point")).to_contain_text("32")
    row = page.locator("#weights-table tr[data-resolution='32']")
    row.get_by_role("button", name="Evict").click()
    expect(row).to_have_attribute("data-state", "cold")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#answer-weights")).to_have_text("weights generated")
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#answer-weights")).to_have_text("weights ready")


def test_evicting_twice_is_answered_with_a_sentence(page, visitor):
    visitor.allowed = ("status of 404",)
    row = page.locator("#weights-table tr[data-resolution='96']")
    page.locator("#pin").select_option("96")
    expect(row).to_have_attribute("data-state", "cached")
    before = page.request.get(f"{page.url}resolutions").body()
    page.route(
        "**/resolutions",  # the row stays as it was
        lambda route: route.fulfill(body=before, content_type="application/json"),
    )
    assert page.request.delete(f"{page.url}resolutions/96").ok
    row.get_by_role("button", name="Evict").click()
    expect(page.locator("#weights-notice")).to_contain_text(
        "No weights for 96 px are in the cache."
    )


@pytest.fixture
def own_page(visitor, make_settings):
    """With a service of its own: its clock is so slow that it would remember the load for long."""
    with serving(make_settings()) as address:
        page = visitor.open(address)
        yield page
        page.context.close()


def test_the_history_keeps_the_last_hundred(own_page, visitor):
    page = own_page
    visitor.allowed = REFUSALS
    page.evaluate("() => document.getElementById('load-rate').value = 60")
    page.locator("#load-seconds").fill("3")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")
    shown = page.locator("#history .past").count()
    assert 1 < shown <= 100
    page.locator("#history .past").last.hover(force=True)
    expect(page.locator("#tooltip")).to_be_visible()


def test_load_is_bounded_and_reported(own_page, visitor):
    page = own_page
    visitor.allowed = REFUSALS
    page.locator("#load-rate").fill("9999")
    page.locator("#load-seconds").fill("999")
    page.get_by_role("button", name="Start", exact=True).click()
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    expect(page.locator("#load-rate")).to_have_value("200")
    expect(page.locator("#load-seconds")).to_have_value("30")
    stop.click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()


def test_a_load_run_counts_what_it_sent(page):
    page.locator("#load-rate").fill("4")
    page.locator("#load-seconds").fill("2")
    for budget in (10, 50, 100):
        page.locator(f"#load-budgets input[value='{budget}']").uncheck()
    page.locator("#load-budgets input[value='250']").check()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")
    tiles = dict(tile.split("\n") for tile in page.locator("#load-view .tile").all_inner_texts())
    assert 1 <= int(tiles["Sent"]) <= 8
    assert tiles["In time"] == "100.0\u202f%"
    expect(page.locator("#load-mix")).to_contain_text("96 px")


def test_load_is_shown_beside_a_server_with_one_size(page):
    page.locator("#load-rate").fill("4")
    page.locator("#load-seconds").fill("1")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")
    against = page.locator("#load-against")
    expect(against).to_contain_text("This service")
    expect(against).to_contain_text("A fixed 96\u202fpx server, same traffic")
    expect(against).to_contain_text("for the network and")
    expect(against).to_contain_text("for decoding, both measured here")
    expect(against).to_contain_text("in time")


def test_two_budgets_side_by_side(page):
    page.locator(".side input").nth(0).fill("3")
    page.locator(".side input").nth(0).press("Enter")
    sides = page.locator(".side-answer")
    expect(sides.nth(0)).to_contain_text("32\u202fpx")
    expect(sides.nth(1)).to_contain_text("96\u202fpx")
    expect(page.locator("#compare-summary")).to_contain_text("32 against 96\u202fpx")
    drawn = page.locator(".side-answer canvas").evaluate_all(
        """all => all.map((canvas) => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return data.some((value, i) => i % 4 === 3 && value > 0);
        })"""
    )
    assert drawn == [True, True]
    page.locator(".side input").nth(1).fill("20")
    page.locator(".side input").nth(1).press("Enter")
    expect(sides.nth(1)).to_contain_text("64\u202fpx")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#compare-summary")).to_contain_text("32 against 64\u202fpx")


def test_the_camera_is_classified_frame_by_frame(visitor, url):
    page = visitor.open(url, permissions=["camera"])
    page.get_by_role("button", name="use the camera").click()
    expect(page.locator("#thumb video")).to_be_visible()
    expect(page.locator("#picture-name")).to_contain_text("camera")
    page.wait_for_function("() => document.querySelectorAll('#history .past').length >= 3")
    page.get_by_role("button", name="stop the camera").click()
    expect(page.get_by_role("button", name="use the camera")).to_be_visible()


def test_without_a_picture_the_panels_ask_for_one(visitor, url):
    def withhold(page):
        page.route("**/assets/examples/*", lambda route: route.abort())

    visitor.allowed = ("Failed to load resource",)
    page = visitor.open(url, answered=False, prepare=withhold)
    expect(page.locator("#status")).to_have_text("ready")
    for button, notice in (
        ("Run the sweep", "#sweep-notice"),
        ("Time a cold start", "#weights-notice"),
        ("Start", "#load-notice"),
        ("Classify", "#answer-notice"),
    ):
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(notice)).to_contain_text("No picture yet")
