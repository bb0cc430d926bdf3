from san_core.errors import CorruptImageError, ImageTooLargeError, NotAnImageError
from service.errors import (
    OverloadedError,
    Problem,
    slug,
)


def test_unforeseen_errors_tell_the_client_nothing():
    problem = Problem(RuntimeError("secret path /etc"), "id-1")
    assert problem.status == 500
    assert b"secret" not in problem.body
    assert b"id-1" in problem.body


def test_core_errors_have_a_status_here():
    assert Problem(CorruptImageError("x"), None).status == 400
    assert Problem(ImageTooLargeError("x"), None).status == 413
    assert b'"title":"This is not an image"' in Problem(NotAnImageError("x"), None).body
    assert slug(ImageTooLargeError) == "image-too-large"


def test_retry_after_is_whole_seconds_and_at_least_one():
    assert OverloadedError("x", 20.0).headers() == {"Retry-After": "1"}
    assert OverloadedError("x", 2400.0).headers() == {"Retry-After": "3"}
