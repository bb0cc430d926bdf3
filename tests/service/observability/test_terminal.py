"""The log as a person sees it."""

import io
import logging
import re

import pytest

from service.observability.terminal import TerminalHandler


@pytest.fixture
def shown():
    out = io.StringIO()
    handler = TerminalHandler(out)
    loggers = [logging.getLogger(n) for n in ("service.x", "service.request", "uvicorn.error")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield out
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def plain(out):
    return re.sub(r"\033\[\d*[mK]", "", out.getvalue())


def test_ready_says_where_and_what_to_paste(shown):
    facts = {"ready_s": 1.94, "address": "http://127.0.0.1:8000"}
    logging.getLogger("service.x").info("ready", extra={"facts": facts})
    assert plain(shown).startswith("Ready after 1.9 s. Open http://127.0.0.1:8000, or paste:\n")
    assert "curl --data-binary @photo.jpg 'http://127.0.0.1:8000/classify?budget_ms=20'" in plain(
        shown
    )


def test_a_bar_is_replaced_by_what_follows(shown):
    logger = logging.getLogger("service.x")
    logger.info("points complete", extra={"progress": (1, 2)})
    logger.info("points complete", extra={"progress": (2, 2)})
    logger.warning("look here")
    assert plain(shown).split("\r") == [
        "━" * 24 + " 1 of 2 points complete",
        "━" * 24 + " 2 of 2 points complete",
        "look here\n",
    ]


def test_a_bar_says_how_long_it_will_take_if_that_is_known(shown):
    logger = logging.getLogger("service.x")
    for left in (None, 1.2, 0.0):
        logger.info("building", extra={"progress": (1, 4, left)})
    assert [line.split(" ", 1)[1] for line in plain(shown).split("\r")] == [
        "1 of 4 building",
        "1 of 4 building, about 2 s left",
        "1 of 4 building",
    ]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (
            {
                "status": 200,
                "total_ms": 8.31,
                "budget_ms": 20.0,
                "met": True,
                "resolution": 224,
                "precision": "int8",
                "decode_ms": 2.0,
                "queue_ms": 0.0,
                "forward_ms": 5.1,
            },
            "200      8.3 ms  of 20  224 px int8  decode 2.0, wait 0.0, run 5.1\n",
        ),
        (
            {"status": 429, "total_ms": 0.2, "error": "overloaded", "reason": "try later"},
            "429      0.2 ms  overloaded: try later\n",
        ),
        (
            {
                "status": 429,
                "total_ms": 1.0,
                "resolution": 64,
                "precision": "int8",
                "decode_ms": 0.0,
                "queue_ms": 0.0,
                "forward_ms": 0.0,
                "error": "overloaded",
            },
            "429      1.0 ms  64 px int8  overloaded\n",
        ),
        (
            {"status": 422, "total_ms": 0.5, "budget_ms": 50.0, "met": False, "error": "parameter"},
            "422      0.5 ms  of 50  parameter\n",
        ),
        (
            {
                "status": 0,
                "total_ms": 37.6,
                "budget_ms": 199.972,
                "resolution": 224,
                "precision": "int8",
                "error": "disconnected",
                "reason": "224 px fits.",
            },
            "---     37.6 ms  of 200  224 px int8  the client left\n",
        ),
    ],
)
def test_a_request_is_one_line(shown, facts, line):
    logging.getLogger("service.request").info("classify", extra={"facts": facts})
    assert plain(shown) == line


def test_the_web_server_is_shown_if_it_complains(shown):
    logging.getLogger("uvicorn.error").info("Started server process")
    assert plain(shown) == ""
    logging.getLogger("uvicorn.error").warning("oh")
    assert plain(shown) == "oh\n"
