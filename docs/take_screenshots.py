"""Takes the pictures of the console that the documents show, from a service that is running.

Usage, on a machine that does nothing else: ``python docs/take_screenshots.py URL [BUDGET_MS]``
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

IMAGES = Path(__file__).parent / "images"
PATIENCE_MS = 180_000
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def take(browser: Browser, url: str, name: str, *, width: int, theme: str, budget: str) -> None:
    """One picture of the whole page, with every panel in use."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=theme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    expect(page.locator(".predictions li")).to_have_count(5)
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-run")).to_have_text("Run the sweep")
    page.locator("#cold-run").click()
    expect(page.locator(".versus")).to_be_visible()
    page.locator("#load-rate").fill("10")
    page.locator("#load-run").click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")
    page.locator("#budget-number").fill(budget)
    page.locator("#budget-number").press("Enter")
    expect(page.locator("#tile-promise")).to_contain_text(f"of {budget}\u202fms")
    page.locator("#budget-number").blur()
    page.screenshot(path=IMAGES / name, full_page=True)
    context.close()


def main(url: str, budget: str = "25") -> None:
    """Light and dark on a desk, light on a phone."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        take(browser, url, "console-light.png", width=1440, theme="light", budget=budget)
        take(browser, url, "console-dark.png", width=1440, theme="dark", budget=budget)
        take(browser, url, "console-phone.png", width=390, theme="light", budget=budget)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
