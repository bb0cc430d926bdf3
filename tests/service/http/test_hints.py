import pytest


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/classify", 405, "/classify takes POST, not GET: curl --data-binary"),
        ("PUT", "/classify", 405, "/classify takes POST, not PUT"),
        ("POST", "/clasify", 404, "did you mean /classify?"),
        ("POST", "/predict", 404, "POST an image to /classify."),
        ("POST", "/v1/models/x:predict", 404, "POST an image to /classify."),
        ("GET", "/resolution", 404, "did you mean /resolutions?"),
        ("GET", "/nothing/like/it", 404, "There is nothing at /nothing/like/it. /docs lists"),
        ("POST", "/", 405, "POST an image to /classify."),
        ("PUT", "/resolutions", 405, "/resolutions does not take PUT; see Allow"),
    ],
)
def test_a_wrong_path_or_method_is_told_the_right_one(client, method, path, status, sentence):
    response = client.request(method, path)
    assert response.status_code == status
    assert sentence in response.json()["detail"]
