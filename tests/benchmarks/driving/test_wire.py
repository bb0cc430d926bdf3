import pytest

from benchmarks.driving.wire import form, parse, post


def test_a_post_carries_its_length_and_body():
    head, _, body = post("/classify?budget_ms=5", b"abc").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /classify?budget_ms=5 HTTP/1.1\r\n")
    assert b"Content-Length: 3" in head
    assert body == b"abc"


def test_a_form_has_the_image_between_its_boundaries():
    head, _, body = form("/classify", "image", b"\xff\xd8pixels").partition(b"\r\n\r\n")
    boundary = head.rpartition(b"boundary=")[2].split(b"\r\n")[0]
    assert body.startswith(b"--" + boundary)
    assert body.endswith(b"\r\n--" + boundary + b"--\r\n")
    assert b'name="image"' in body
    assert b"\r\n\r\n\xff\xd8pixels\r\n" in body


WHOLE = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-San-Resolution: 96\r\n\r\nhello",
    "length last": b"HTTP/1.1 200 OK\r\nX-San-Resolution: 96\r\ncontent-length:5\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\nX-San-Resolution: 96\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_an_answer_is_cut_at_its_end_and_nowhere_before(data):
    assert all(parse(data[:n]) is None for n in range(len(data)))
    answer = parse(data)
    assert answer is not None
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.header("x-san-resolution") == "96"
    assert answer.header("x-san") is None
    assert not answer.closes


def test_a_closing_answer_says_so():
    answer = parse(b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert answer is not None
    assert answer.closes
    assert answer.status == 503
