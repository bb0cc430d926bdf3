"""Themes, widths, weight, and whether everybody can use it."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

MOST_BYTES = 200_000


def background(page: Page) -> str:
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def fill_everything(page: Page) -> None:
    page.get_by_text("All operating points as a table").click()
    page.get_by_role("button", name="Run the sweep").click()
    expect(page.locator("#sweep-summary")).to_contain_text("answer changes")
    page.get_by_role("button", name="Time a cold start").click()
    expect(page.locator(".versus")).to_be_visible()
    page.locator("#load-rate").fill("4")
    page.locator("#load-seconds").fill("1")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")


def test_the_page_follows_the_system_theme(visitor, url):
    light = background(visitor.open(url, color_scheme="light"))
    dark = background(visitor.open(url, color_scheme="dark"))
    assert light == "rgb(244, 245, 248)"
    assert dark == "rgb(12, 15, 21)"


def test_a_chosen_theme_beats_the_system_and_stays(visitor, url):
    page = visitor.open(url, color_scheme="light")
    page.get_by_role("button", name="Switch to the dark theme").click()
    assert background(page) == "rgb(12, 15, 21)"
    page.reload()
    expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
    assert background(page) == "rgb(12, 15, 21)"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_axe_finds_nothing_to_complain_about(visitor, url, theme, width):
    # axe is put into the page by the test, which the page's own policy would not allow.
    page = visitor.open(url, width=width, color_scheme=theme, bypass_csp=True)
    fill_everything(page)
    page.locator("#plot .dot").first.hover()
    found = Axe().run(page).response["violations"]
    told = [(v["id"], [node["html"] for node in v["nodes"]]) for v in found]
    assert told == [], str(told)


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_nothing_sticks_out(visitor, url, width):
    page = visitor.open(url, width=width)
    fill_everything(page)
    outside = page.evaluate(
        """() => {
          const wide = document.documentElement.clientWidth;
          const aside = ".scroll, .strip-scroll, .hidden, .hidden-file, .skip";
          const scrolls = (node) => node.closest(aside);
          return [...document.querySelectorAll("body *")]
            .filter((node) => !scrolls(node) && node.getBoundingClientRect().right > wide + 0.5)
            .map((node) => node.outerHTML.slice(0, 80));
        }"""
    )
    assert outside == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_the_page_is_light(visitor, url):
    page = visitor.open(url)
    sizes = page.evaluate(
        "() => [...performance.getEntriesByType('navigation'),"
        " ...performance.getEntriesByType('resource')]"
        ".map((entry) => [entry.name, entry.transferSize])"
    )
    assets = {name: size for name, size in sizes if not name.endswith(".jpg")}
    assert len(assets) > 20
    assert 50_000 < sum(assets.values()) < MOST_BYTES
    blocking = page.evaluate(
        "() => performance.getEntriesByType('resource')"
        ".filter((entry) => entry.renderBlockingStatus === 'blocking').map((entry) => entry.name)"
    )
    assert sorted(name.rpartition("/")[2] for name in blocking) == ["console.css", "theme.js"]


def test_every_control_has_a_name(page):
    controls = page.locator("button:visible, input:visible, select:visible, a:visible, summary")
    assert controls.count() > 20
    for control in controls.all():
        expect(control).to_have_accessible_name(re.compile(r"\S"))


def test_the_policy_stops_inline_code(page, visitor):
    visitor.allowed = ("Content Security Policy", "TrustedHTML", "TrustedScript")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          try { script.textContent = "window.broken = true"; } catch { /* trusted types */ }
          document.body.append(script);
        }"""
    )
    assert page.evaluate("() => window.broken") is None
