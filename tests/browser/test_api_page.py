"""The API's page, without any other host."""

from __future__ import annotations

from playwright.sync_api import expect


def test_the_reference_shows_and_tries_offline(visitor, url):
    page = visitor.open(f"{url}/docs" if not url.endswith("/") else f"{url}docs", answered=False)
    expect(page.locator(".opblock").first).to_contain_text("/classify")
    expect(page.locator(".info")).to_contain_text("say how long you can wait")
    expect(page.get_by_role("button", name="Authorize")).to_be_visible()
