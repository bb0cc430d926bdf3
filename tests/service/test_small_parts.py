"""Parts too small for a file of their own: headers, forms, keys, feedback, the door, answers."""

import asyncio
import io
import logging
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from san_core.errors import CorruptImageError, ImageTooLargeError
from san_core.frontier import OperatingPoint
from san_core.preprocessing import inspect
from service.errors import (
    DrainingError,
    ForbiddenError,
    KeyFileError,
    NotReadyError,
    OutdatedFeedbackError,
    OverloadedError,
    ParameterError,
    Problem,
    RepeatedFeedbackError,
    UnauthorisedError,
    UnknownFeedbackError,
    slug,
)
from service.http.auth import Doors, KeyRing
from service.http.multipart import image_bytes
from service.http.server import server_config
from service.images.decoder import Decoder
from service.images.header import quick_header
from service.observability.logs import TextFormatter
from service.request.answer import top_k
from service.request.record import RequestRecord
from service.request.terms import Terms
from service.runtime.cores import available_cores, plan_cores
from service.scheduling.admission import Admission
from service.serving.agreement import Agreement
from service.serving.feedback import FeedbackStore, Remembered, resolve_truth
from service.settings import Settings
from tests.service.conftest import picture
from tests.service.fakes import FakeClock, InlineWorkers

# headers


@pytest.mark.parametrize("name", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (33, 1000)])
def test_the_quick_header_agrees_with_pillow(name, size):
    data = picture(*size, name)
    header = quick_header(data)
    assert (header.format, header.width, header.height) == (name, *size)


def test_progressive_and_commented_jpegs(tmp_path):
    out = io.BytesIO()
    Image.new("RGB", (70, 50)).save(out, "JPEG", progressive=True, comment=b"x" * 5000)
    header = quick_header(out.getvalue())
    assert (header.width, header.height) == (70, 50)


def progressive(size, repeats):
    """A progressive JPEG whose last scan comes again and again."""
    out = io.BytesIO()
    Image.new("L", size).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + repeats * last + data[-2:]


def three_scans(size):
    """A baseline JPEG with a scan per component: three grey ones in one file."""
    out = io.BytesIO()
    Image.new("L", size).save(out, "JPEG")
    data = out.getvalue()
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    components = b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3))
    head = data[:frame] + b"\xff\xc0\0\x11" + data[frame + 4 : frame + 9] + b"\3" + components
    scans = (b"\xff\xda\0\x08\1%c\0\0\x3f\0" % c + data[scan + 10 : -2] for c in (1, 2, 3))
    return head + data[frame + 13 : scan] + b"".join(scans) + b"\xff\xd9"


def test_scans_are_counted_where_there_can_be_several():
    assert quick_header(picture()).scans == 1
    assert quick_header(picture() + b"\xff\xda" * 50).scans == 1
    several = quick_header(progressive((70, 50), 0)).scans
    assert 3 <= several <= 20
    assert quick_header(progressive((70, 50), 7)).scans == several + 7
    assert quick_header(three_scans((70, 50))).scans == 3
    assert inspect(three_scans((70, 50))).scans == 3


@pytest.mark.parametrize(
    ("size", "repeats", "taken"),
    [
        ((70, 50), 80, True),
        ((70, 50), 100, False),
        ((6000, 6000), 0, True),
        ((6000, 6000), 30, False),
    ],
)
def test_a_jpeg_of_too_many_scans_is_refused_before_it_is_decoded(size, repeats, taken):
    decoder = Decoder(InlineWorkers(), FakeClock(), max_pixels=50_000_000, max_frames=9)
    data = progressive(size, repeats)
    for padding in (b"", bytes(1_000_000)):  # the second is counted on a decoder thread
        looked = decoder.header(data + padding, 0.0)
        if taken:
            assert asyncio.run(looked).scans >= repeats
        else:
            with pytest.raises(ImageTooLargeError, match="scans"):
                asyncio.run(looked)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_header_or_none(data):
    for start in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        header = quick_header(start + data)
        assert header is None or (header.width > 0 and header.height > 0)


# forms


def form(boundary, *parts):
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (boundary, name, value)
        for name, value in parts
    )
    return body + b"--%s--\r\n" % boundary


def test_the_field_is_found_among_others():
    body = form(b"B", (b"note", b"hi"), (b"image", b"\r\nPIX--B\r\n"), (b"more", b"x"))
    assert image_bytes(body, b"multipart/form-data; boundary=B") == b"\r\nPIX--B\r\n"


def test_the_bytes_decide():
    assert image_bytes(b"\xff\xd8\xff", b"multipart/form-data; boundary=B") == b"\xff\xd8\xff"
    assert image_bytes(b"--B", None) == b"--B"
    assert image_bytes(b"--B", b"image/jpeg") == b"--B"


@pytest.mark.parametrize(
    "body",
    [
        form(b"B", (b"photo", b"x")),
        form(b"B", (b"image", b"x"), (b"image", b"y")),
        b"--B\r\nContent-Disposition\r\n\r\nbroken",
        b"--Bxx",
    ],
)
def test_forms_that_cannot_be_used(body):
    with pytest.raises(ParameterError):
        image_bytes(body, b"multipart/form-data; boundary=B")


@given(st.binary(max_size=200))
def test_any_form_is_read_or_refused(data):
    with suppress(ParameterError):
        assert isinstance(image_bytes(b"--B" + data, b"multipart/form-data; boundary=B"), bytes)


# keys


def test_rings(tmp_path):
    assert not KeyRing([])
    assert KeyRing(["a", "b"]).opens("b")
    assert not KeyRing(["a"]).opens("A")
    empty = tmp_path / "keys"
    empty.write_text("# nothing\n")
    with pytest.raises(KeyFileError, match="no key"):
        KeyRing.read((), empty)
    with pytest.raises(KeyFileError, match="cannot be read"):
        KeyRing.read((), tmp_path / "missing")


def test_admin_is_for_this_machine_unless_there_are_keys():
    doors = Doors(Settings())
    doors.check("/admin/reload", [], "127.0.0.1")
    with pytest.raises(ForbiddenError):
        doors.check("/admin/reload", [], "10.0.0.7")
    with pytest.raises(ForbiddenError):
        doors.check("/admin/reload", [], None)
    with pytest.raises(ForbiddenError):
        Doors(Settings(api_keys="a")).check("/admin/reload", [(b"x-api-key", b"a")], "127.0.0.1")


def test_every_path_but_the_public_ones_needs_a_key():
    doors = Doors(Settings(api_keys="a"))
    for path in (
        "/classify",
        "/resolutions",
        "/feedback",
        "/version",
        "/v2/models/x/infer",
        "/other",
    ):
        with pytest.raises(UnauthorisedError):
            doors.check(path, [], "127.0.0.1")
        doors.check(path, [(b"authorization", b"bearer a")], "127.0.0.1")
    for path in ("/", "/healthz", "/readyz", "/v2/health/live", "/docs"):
        doors.check(path, [], "10.0.0.7")


# feedback


def test_the_store_is_bounded_and_exact():
    store = FeedbackStore(2)
    for name in ("a", "b", "c"):
        store.remember(name, Remembered(64, ("m", "1"), (3, 1)))
    assert len(store) == 2
    with pytest.raises(UnknownFeedbackError):
        store.judge("a", frozenset({3}), ("m", "1"))
    with pytest.raises(OutdatedFeedbackError, match="by m 1, and m 2 serves now"):
        store.judge("b", frozenset({1}), ("m", "2"))
    judged = store.judge("b", frozenset({1}), ("m", "1"))
    assert (judged.correct, judged.in_top5) == (False, True)
    with pytest.raises(RepeatedFeedbackError):
        store.judge("b", frozenset({1}), ("m", "1"))


def test_classes_that_share_a_name_are_all_the_truth():
    classes = ("crane", "boat", "crane")
    assert resolve_truth(classes, label="crane", index=None) == {0, 2}
    assert resolve_truth(classes, label=None, index=1) == {1}
    for wrong in (
        {"label": "x", "index": None},
        {"label": None, "index": 3},
        {"label": None, "index": None},
        {"label": "boat", "index": 1},
    ):
        with pytest.raises(ParameterError):
            resolve_truth(classes, **wrong)


def test_a_sample_of_a_replaced_bundle_is_not_compared():
    served = SimpleNamespace(manifest=SimpleNamespace(name="m", version="2"), frontier=())
    agreement = Agreement(
        SimpleNamespace(deployment=served), None, None, None, None, Settings(), FakeClock()
    )
    record = RequestRecord("id", Terms(), "m", "1", point=OperatingPoint(64))
    agreement._fraction = 1.0
    agreement.offer(record, b"image", 3)
    (sample,) = agreement._pending
    asyncio.run(agreement.compare(sample))  # or it would ask for the best point of the frontier


# the door


def test_the_door_counts_requests_and_bytes_and_forgets_those_who_left():
    door = Admission(max_requests=2, max_bytes=100)
    with pytest.raises(NotReadyError):
        door.check()
    door.ready = True
    door.check()
    with door.enter(60), pytest.raises(OverloadedError):
        door.enter(50)
    with door.enter(60), door.enter(40), pytest.raises(OverloadedError):
        door.enter(0)
    assert door.is_idle
    assert door.bytes == 0
    door.draining = True
    with pytest.raises(DrainingError):
        door.check()


def test_a_request_that_fails_inside_leaves_too():
    door = Admission(max_requests=1, max_bytes=100)
    with pytest.raises(ZeroDivisionError), door.enter(10):
        raise ZeroDivisionError
    assert door.is_idle


# problems


def test_unforeseen_errors_tell_the_client_nothing():
    problem = Problem(RuntimeError("secret path /etc"), "id-1")
    assert problem.status == 500
    assert b"secret" not in problem.body
    assert b"id-1" in problem.body


def test_core_errors_have_a_status_here():
    assert Problem(CorruptImageError("x"), None).status == 400
    assert Problem(ImageTooLargeError("x"), None).status == 413
    assert slug(ImageTooLargeError) == "image-too-large"


def test_retry_after_is_whole_seconds_and_at_least_one():
    assert OverloadedError("x", 20.0).headers() == {"Retry-After": "1"}
    assert OverloadedError("x", 2400.0).headers() == {"Retry-After": "3"}


# answers


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.integers(1, 60))
def test_top_k_is_the_head_of_the_sorted_list(values, k):
    scores = np.array(values, dtype=np.float32)
    found = top_k(scores, tuple(str(i) for i in range(len(values))), k)
    assert len(found) == min(k, len(values))
    assert [p.score for p in found] == sorted(scores.tolist(), reverse=True)[: len(found)]
    assert len({p.index for p in found}) == len(found)


# cores


@given(st.integers(1, 256), st.sampled_from(["torch", "openvino", "auto"]))
def test_everyone_gets_a_thread_and_the_operator_has_the_last_word(cores, engine):
    plan = plan_cores(cores, engine)
    assert plan.engine >= 1
    assert plan.decode >= 1
    if engine == "torch" and cores > 1:
        assert plan.engine + plan.decode <= cores
    assert plan_cores(cores, engine, engine_threads=3, decode_threads=5).engine == 3
    assert plan_cores(cores, engine, engine_threads=3, decode_threads=5).decode == 5


def test_there_is_at_least_one_core():
    assert available_cores() >= 1


# the log, and the server


def test_a_line_of_text_tells_the_facts_too():
    line = logging.makeLogRecord({"msg": "classify", "levelname": "INFO"})
    line.facts = {"status": 422, "met": False, "reason": "No point\nfits."}
    text = TextFormatter(worker=3).format(line)
    assert text.endswith(r"INFO    [3] classify status=422 met=False reason='No point\nfits.'")
    assert TextFormatter().format(logging.makeLogRecord({"msg": "ready"})).endswith(" ready")


def test_a_fraction_of_a_second_is_not_none():
    config = server_config(None, Settings(keep_alive_s=0.5, drain_timeout_s=0.2))
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (1, 1)
