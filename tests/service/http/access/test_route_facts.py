from fastapi import APIRouter, FastAPI

from service.http.access.route_facts import Access, RouteFacts, RouteTable, facts
from tests.service.conftest import picture, serving


def _scope(path, method="GET"):
    return {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}


def test_a_route_is_found_by_its_pattern_and_a_path_without_one_needs_a_key():
    router = APIRouter()

    @router.post("/models/{name}/infer", openapi_extra=facts(Access.API, classifies=True))
    async def infer(name: str) -> None: ...

    @router.get("/healthz", openapi_extra=facts(Access.PUBLIC))
    async def healthz() -> None: ...

    api = FastAPI()
    api.include_router(router)
    table = RouteTable(api.routes)
    assert table[_scope("/models/x/infer", "POST")] == RouteFacts(Access.API, classifies=True)
    assert table[_scope("/healthz")].access is Access.PUBLIC
    assert table[_scope("/healthz", "POST")] == RouteFacts()
    assert table[_scope("/other")] == RouteFacts(Access.API, classifies=False)


def test_every_path_but_the_public_ones_needs_a_key(make_settings):
    with serving(make_settings(api_keys="a")) as running, running.client() as client:
        for path in ("/resolutions", "/version", "/v2", "/v2/models/tiny", "/other", "/docs/x"):
            assert client.get(path).status_code == 401, path
            allowed = client.get(path, headers={"Authorization": "Bearer a"})
            assert allowed.status_code in (200, 404), path
        for path in ("/classify", "/feedback", "/v2/models/tiny/infer"):
            assert client.post(path, content=picture()).status_code == 401, path
        for path in ("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/live/"):
            assert client.get(path).status_code == 200, path
        for path in ("/docs", "/openapi.json", "/assets/main.js", "/metrics"):
            assert client.get(path).status_code == 200, path
        assert client.post("/admin/reload").status_code == 403
