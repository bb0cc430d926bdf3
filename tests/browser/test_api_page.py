"""The API's page, without any other host."""

from __future__ import annotations

from playwright.sync_api import expect


def test_the_reference_shows_without_another_host(page):
    page.goto(f"{page.url}docs")
    expect(page.locator(".opblock").first).to_contain_text("/classify")
    expect(page.locator(".info")).to_contain_text("say how long you can wait")
    expect(page.get_by_role("button", name="Authorize")).to_be_visible()


def test_the_first_try_has_a_budget_filled_in(page):
    page.goto(f"{page.url}docs")
    page.locator(".opblock-post").first.click()
    expect(page.locator("tr[data-param-name=budget_ms] input")).to_have_value("20")
