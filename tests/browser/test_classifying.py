"""Pictures in, answers out, and what a budget buys."""

from __future__ import annotations

import io
import json
import re

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from service.settings import Settings
from tests.browser.service_in_slow_motion import serving

WOULD = "#would-resolution"
USED = ".tag.point"
# Slider positions of 3, 20 and 100 ms on the log scale from 1 to 250 ms.
AT_3_MS, AT_20_MS, AT_100_MS = "200", "544", "836"


def picture(width: int = 300, height: int = 200, image_format: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(out, image_format)
    return out.getvalue()


def upload(page: Page, name: str, data: bytes, kind: str = "image/png") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": data})


def resolution_in(page: Page) -> int:
    found = re.match(r"\d+", page.locator(USED).inner_text())
    assert found
    return int(found.group())


def test_the_first_visit_shows_an_answer_without_a_click(page):
    expect(page.locator("#status")).to_have_text("ready")
    expect(page.locator(".predictions li").first).to_contain_text("traffic light")
    expect(page.locator("#answer-reason")).to_contain_text("buys the most accuracy in time")
    expect(page.locator("#tile-predicted")).to_contain_text("of 25 ms allowed")
    expect(page.locator("#tile-took")).to_contain_text("met")
    expect(page.locator("#timeline")).to_contain_text("forward")
    expect(page.locator("#history .past")).to_have_count(1)


def test_an_uploaded_picture_is_classified_and_shown_as_the_network_saw_it(page):
    upload(page, "gradient.png", picture())
    expect(page.locator("#picture-name")).to_contain_text("gradient.png, 300 \u00d7 200")
    expect(page.locator("#history .past")).to_have_count(2)
    seen = page.locator("#seen")
    expect(seen).to_have_attribute("width", "64")
    expect(seen).to_have_attribute("aria-label", re.compile("64 \u00d7 64"))
    assert resolution_in(page) == 64
    # A vertical gradient: the crop begins 6.25 % down and its rows differ.
    top, bottom = page.evaluate(
        """() => {
          const context = document.getElementById("seen").getContext("2d");
          const { data } = context.getImageData(32, 0, 1, 64);
          return [data[0], data[4 * 63]];
        }"""
    )
    assert top == pytest.approx(255 * 0.0625, abs=4)
    assert bottom == pytest.approx(255 * 0.9375, abs=4)


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_a_picture_can_be_pasted_and_dropped(page, way):
    page.evaluate(
        """async ([way, bytes]) => {
          const carrier = new DataTransfer();
          const content = [new Uint8Array(bytes)];
          carrier.items.add(new File(content, "carried.png", { type: "image/png" }));
          const common = { bubbles: true, cancelable: true };
          const event = way === "paste"
            ? new ClipboardEvent("paste", { clipboardData: carrier, ...common })
            : new DragEvent("drop", { dataTransfer: carrier, ...common });
          document.body.dispatchEvent(event);
        }""",
        [way, list(picture(40, 40))],
    )
    expect(page.locator("#picture-name")).to_contain_text("carried.png")
    expect(page.locator("#history .past")).to_have_count(2)


def test_an_example_is_one_click_away(page):
    page.get_by_role("button", name="Example: a cup of coffee").click()
    expect(page.locator("#picture-name")).to_contain_text("coffee.jpg")
    expect(page.locator("#history .past")).to_have_count(2)


def test_the_slider_changes_the_choice(page):
    slider = page.get_by_role("slider", name="Latency budget")
    for position, expected in ((AT_3_MS, 32), (AT_20_MS, 64), (AT_100_MS, 96)):
        slider.fill(position)
        expect(page.locator(WOULD)).to_contain_text(str(expected))
        expect(page.locator(USED)).to_contain_text(f"{expected}\u202fpx")
        expect(page.locator("#seen")).to_have_attribute("width", str(expected))


def test_the_plot_says_what_would_be_chosen_before_anything_is_sent(page):
    page.route("**/classify*", lambda route: None)  # never answered
    page.locator("#budget").fill(AT_100_MS)
    expect(page.locator(WOULD)).to_contain_text("96")
    expect(page.locator("#would-accuracy")).to_have_text("68.0\u202f%")
    expect(page.locator("#plot svg")).to_have_attribute("aria-label", re.compile("buys 96"))
    expect(page.locator("#plot .would")).to_have_count(1)
    assert resolution_in(page) == 64


def test_the_budget_can_be_set_with_the_keyboard_alone(page):
    slider = page.get_by_role("slider", name="Latency budget")
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "1\u202fms")
    expect(page.locator(WOULD)).to_contain_text("late")
    expect(page.locator("#tile-took")).to_contain_text("missed by")
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "250\u202fms")
    expect(page.locator(USED)).to_contain_text("96")


def test_typing_a_budget_moves_the_slider(page):
    page.locator("#budget-number").fill("100")
    page.locator("#budget-number").press("Enter")
    expect(page.locator("#budget")).to_have_value(AT_100_MS)
    expect(page.locator(USED)).to_contain_text("96")


def test_dragging_on_the_plot_moves_the_budget(page):
    plot = page.locator("#plot svg")
    plot.click(position={"x": 60, "y": 100})
    expect(page.locator("#would-resolution")).to_contain_text("late")


def test_hovering_a_point_gives_its_numbers(page):
    page.locator("#plot .dot.on").last.hover()
    tooltip = page.locator("#tooltip")
    expect(tooltip).to_be_visible()
    expect(tooltip).to_contain_text("top-1 68.0")
    expect(tooltip).to_contain_text("fits a budget of")


def test_a_resolution_can_be_pinned(page):
    page.locator("#pin").select_option("48")
    expect(page.locator(USED)).to_contain_text("48\u202fpx")
    expect(page.locator("#answer-reason")).to_contain_text("pinned")


def test_both_halves_say_the_same(page):
    for position in (AT_3_MS, AT_20_MS, AT_100_MS):
        page.locator("#budget").fill(position)
        page.wait_for_timeout(400)
        expect(page.locator(WOULD)).to_contain_text(re.compile(rf"^{resolution_in(page)}"))


def test_an_answer_is_what_the_budget_buys_whatever_the_next_plan_would_be(page):
    page.locator("#budget").fill(AT_100_MS)
    expect(page.locator(WOULD)).to_contain_text("96")

    def of_another_moment(route):
        route.continue_(url=re.sub(r"budget_ms=[^&]+", "budget_ms=3", route.request.url))

    page.route("**/plan?*", of_another_moment)
    with page.expect_response("**/resolutions"):
        page.locator("#classify").click()
    page.wait_for_timeout(400)
    assert resolution_in(page) == 96
    expect(page.locator(WOULD)).to_contain_text("96")


def test_the_points_stand_still_and_the_line_never_goes_back(page):
    def places():
        return page.evaluate(
            """() => [...document.querySelectorAll("#plot .dot")]
              .map((dot) => [dot.getAttribute("cx") ?? dot.getAttribute("x"), dot.classList[1]])"""
        )

    before = places()
    for _ in range(3):
        page.get_by_role("button", name="Classify").click()
        page.wait_for_timeout(200)
    assert places() == before
    path = page.locator("#plot .front").get_attribute("d")
    across = [float(x) for x in re.findall(r"[MH]([\d.]+)", path)]
    up = [float(y) for y in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", path)]
    assert across == sorted(across)
    assert up == sorted(up, reverse=True)


def test_the_legend_explains_every_mark(page):
    for mark in ("int8", "float", "between trained sizes", "beyond them", "beaten by another",
                 "would be taken now", "taken last", "too late", "estimate now",
                 "within the budget", "small to large"):  # fmt: skip
        expect(page.locator("#legend")).to_contain_text(mark)


def test_a_question_mark_explains_the_words(page):
    page.locator("[popovertarget=help-weights]").click()
    expect(page.locator("#help-weights")).to_be_visible()
    expect(page.locator("#help-weights")).to_contain_text("Proxy")


def test_the_same_request_as_code(page):
    code = page.locator(".command code")
    expect(code).to_contain_text("--data-binary @cat.jpg")
    page.get_by_role("tab", name="Python").click()
    expect(code).to_contain_text('client.classify("cat.jpg", budget_ms=25)')
    page.get_by_role("tab", name="JavaScript").click()
    expect(code).to_contain_text("await fetch(")


def test_on_a_phone_the_answer_is_in_sight(visitor, url):
    page = visitor.open(url, width="phone")
    bar = page.locator("#answer-bar")
    expect(bar).to_be_in_viewport()
    expect(bar).to_contain_text("px")
    assert bar.bounding_box()["width"] > 300  # as wide as the page, so that it can be read
    visitor.allowed = ("status of 400",)
    upload(page, "notes.txt", b"these are only words", "text/plain")
    expect(bar).to_have_text("That file is not an image")


def test_all_points_are_in_a_table_too(page):
    page.get_by_text("All operating points as a table").click()
    rows = page.locator("#points-table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("32")


# ---------------------------------------------------------------- errors


def test_what_is_not_an_image_is_answered_with_a_sentence(page, visitor):
    visitor.allowed = ("status of 400",)
    upload(page, "notes.txt", b"these are only words", "text/plain")
    notice = page.locator("#answer-notice")
    expect(notice.locator("strong")).to_have_text("That file is not an image")
    expect(page.locator("#answer")).to_be_hidden()  # the notice takes the answer's place
    expect(page.locator("#seen-caption")).to_have_text("The network saw nothing.")
    said = notice.inner_text()
    assert said.rstrip().endswith(".")
    assert "{" not in said
    assert "detail" not in said
    expect(page.locator("#history .past.refused")).to_have_count(1)
    upload(page, "gradient.png", picture())
    expect(notice).to_be_empty()
    expect(page.locator("#answer")).to_be_visible()


def test_an_impossible_budget_names_the_smallest_and_offers_it(page, visitor):
    visitor.allowed = ("status of 422",)
    page.get_by_label("refuse rather than be late").check()
    page.locator("#budget").fill("0")
    notice = page.locator("#answer-notice")
    expect(notice).to_contain_text("No size is that fast")
    expect(notice).to_contain_text("The smallest budget that works is")
    notice.get_by_role("button", name="Allow").click()
    expect(notice).to_be_empty()
    expect(page.locator(USED)).to_contain_text("32")
    expect(page.locator("#tile-took")).to_contain_text("met")


def test_a_service_that_is_gone_is_said_to_be(page, visitor):
    visitor.allowed = ("Failed to load resource",)
    page.route("**/classify*", lambda route: route.abort())
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#answer-notice")).to_contain_text("The service does not answer")
    page.unroute("**/classify*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#answer-notice")).to_be_empty()


def test_overload_says_when_to_come_back(page, visitor):
    visitor.allowed = ("status of 429",)
    body = {"title": "Overloaded", "detail": "The load leaves no room.", "retry_after_ms": 1400}
    page.route(
        "**/classify*",
        lambda route: route.fulfill(
            status=429, content_type="application/problem+json", body=json.dumps(body)
        ),
    )
    page.get_by_role("button", name="Classify").click()
    expect(page.locator("#answer-notice")).to_contain_text(
        "The load leaves no room. Try again in 2 s."
    )


def test_class_names_are_text_not_markup(page):
    page.locator("#pin").select_option("96")
    page.route("**/classify*", _relabel)
    page.get_by_role("button", name="Classify").click()
    expect(page.locator(".predictions .name").first).to_have_text("<img src=x onerror=alert(1)>")


def _relabel(route):
    response = route.fetch()
    answer = response.json()
    answer["predictions"][0]["label"] = "<img src=x onerror=alert(1)>"
    route.fulfill(response=response, json=answer)


def test_a_key_is_asked_for_where_one_is_needed(visitor, make_settings):
    visitor.allowed = ("status of 401",)
    settings: Settings = make_settings(api_keys="open-sesame")
    with serving(settings) as address:
        page = visitor.open(address, answered=False)
        expect(page.get_by_role("dialog", name="An API key is needed")).to_be_visible()
        page.get_by_role("textbox", name="API key").fill("open-sesame")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator(".predictions li")).to_have_count(5)
        page.context.close()


def test_the_page_works_with_a_real_engine(visitor, make_settings):
    with serving(make_settings(), scripted=False) as address:
        page = visitor.open(address)
        page.locator("#pin").select_option("32")
        expect(page.locator(USED)).to_contain_text("32")
        expect(page.locator("#timeline")).to_contain_text("decode")
        page.context.close()
