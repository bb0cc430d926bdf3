import asyncio

from starlette.responses import JSONResponse

from service.processes.relay import Relay, Request


class Everyone:
    """Processes that reach one another by a call."""

    def __init__(self):
        self._answers = {}

    def place(self, name):
        everyone = self

        class Others:
            async def open(self, answer):
                everyone._answers[name] = answer

            async def close(self):
                del everyone._answers[name]

            async def ask(self, question):
                others = {n: a for n, a in everyone._answers.items() if n != name}
                return {n: await answer(question) for n, answer in others.items()}

        return Others()


def application(name, known, calls):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            return
        body = (await receive()).get("body", b"").decode()
        calls.append((name, scope["method"], scope["path"]))
        status = 200 if scope["path"] != "/feedback" or body in known else 404
        if scope["path"] == "/admin/broken" and name == "b":
            status = 409
        await JSONResponse({"from": name}, status)(scope, receive, send)

    return app


async def _serve(names, method, path, body=b""):
    everyone, calls, ends = Everyone(), [], asyncio.Event()
    relays = {
        name: Relay(application(name, {f"of-{name}"}, calls), everyone.place(name))
        for name in names
    }

    async def alive():
        await ends.wait()
        return {"type": "lifespan.shutdown"}

    lives = [asyncio.create_task(r({"type": "lifespan"}, alive, None)) for r in relays.values()]
    await asyncio.sleep(0)
    request = Request(method, path, b"", [], ("127.0.0.1", 1), body)
    answer = await request.answered_by(relays["a"])
    ends.set()
    await asyncio.gather(*lives)
    return answer, [name for name, *_ in calls]


def _asked(method, path, body=b"", names="abc"):
    return asyncio.run(_serve(names, method, path, body))


def test_feedback_goes_to_the_process_that_knows_the_request():
    answer, asked = _asked("POST", "/feedback", b"of-c")
    assert (answer.status, answer.body) == (200, b'{"from":"c"}')
    assert asked[0] == "a"
    assert _asked("POST", "/feedback", b"of-a")[1] == ["a"]
    assert _asked("POST", "/feedback", b"of-nobody")[0].status == 404


def test_an_admin_call_is_made_everywhere_and_a_failure_elsewhere_shows():
    answer, asked = _asked("POST", "/admin/reload")
    assert (answer.body, sorted(asked)) == (b'{"from":"a"}', ["a", "b", "c"])
    answer, _ = _asked("POST", "/admin/broken")
    assert (answer.status, answer.body) == (409, b'{"from":"b"}')


def test_a_request_to_classify_stays_where_it_is():
    for method, path in (("POST", "/classify"), ("GET", "/resolutions"), ("GET", "/admin/x")):
        assert _asked(method, path)[1] == ["a"]


def test_what_is_relayed_arrives_as_it_was():
    request = Request("POST", "/x", b"a=\xff", [(b"k", b"\xfe")], None, b"\x00\xff")
    assert Request.unpacked(request.packed()) == request
