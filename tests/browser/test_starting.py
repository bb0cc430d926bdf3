"""What the page shows of a service that is not ready yet."""

from __future__ import annotations

import re
import threading

from playwright.sync_api import expect

from tests.browser.service_in_slow_motion import serving

NOTE_EVERY_TEXT = """
window.said = [];
new MutationObserver(() => {
  const text = document.getElementById("starting-text")?.textContent;
  if (text && text !== window.said.at(-1)) window.said.push(text);
}).observe(document, { childList: true, characterData: true, subtree: true });
"""


def test_a_start_shows_its_steps_until_the_page_can_be_used(visitor, make_settings):
    visitor.allowed = ("status of 503",)
    may_build = threading.Event()
    with serving(make_settings(), ready=False, may_build=may_build) as address:
        page = visitor.open(address, answered=False)
        card, bar = page.locator("#starting"), page.locator("#starting-bar")
        expect(card).to_contain_text(
            "The service is starting: building the first networks. 1 of 4 steps done, "
        )
        expect(bar).to_have_js_property("value", 1)
        expect(bar).to_have_js_property("max", 4)
        expect(page.locator("#status")).to_have_text("starting")
        expect(page.locator("#classify")).to_be_disabled()
        may_build.set()
        expect(page.locator(".predictions li")).to_have_count(5)
        expect(card).to_be_hidden()
        expect(page.locator("#classify")).to_be_enabled()
        page.context.close()


def test_on_a_phone_the_head_of_the_page_keeps_to_one_line(visitor, make_settings):
    visitor.allowed = ("status of 503",)
    may_build = threading.Event()
    with serving(make_settings(), ready=False, may_build=may_build) as address:
        page = visitor.open(address, width="phone", answered=False)
        expect(page.locator("#starting")).to_be_visible()
        brand, theme = (page.locator(name).bounding_box() for name in (".brand", "#theme"))
        assert theme["y"] < brand["y"] + brand["height"]
        page.context.close()
        may_build.set()


def test_a_first_start_of_the_default_bundle_counts_down(visitor, make_settings):
    visitor.allowed = ("status of 503",)
    settings = make_settings(bundle=None, engine="openvino", max_batch=8)
    with serving(settings, scripted=False, ready=False) as address:
        page = visitor.open(address, prepare=lambda page: page.add_init_script(NOTE_EVERY_TEXT))
        said = page.evaluate("window.said")
        page.context.close()
    steps = [int(found[1]) for text in said if (found := re.search(r"(\d) of 4 steps done", text))]
    assert steps, said
    assert steps == sorted(steps)
    left = [
        int(found[1]) for text in said if (found := re.search(r"about (\d+)\u202fs left", text))
    ]
    assert left, said  # from the second step on
    assert all(0 < seconds < 240 for seconds in left)
    assert all(
        re.search(r"steps done, (about \d+\u202fs left|waiting for \d+\u202fs)\.$", t) for t in said
    )
