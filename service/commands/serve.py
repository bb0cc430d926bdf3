"""`san serve`: every setting is an option here and a `SAN_*` variable in the environment."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from san_core.command_line import add_fields, given_fields, what_is_wrong
from service.errors import EngineLostError, SettingsError
from service.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

HELP = """Serve a bundle over HTTP: POST /classify?budget_ms=20 with an image as the body.

Every option is also a variable of the environment, as named in brackets."""

EXAMPLES = """examples:
  san serve
  san serve mine.safetensors --port 9000
  san serve --host 0.0.0.0 --api-keys-file keys.txt
  SAN_PORT=9000 san serve"""

_GROUPS = {
    "bundle": "the bundle, and where it is served",
    "engine": "what runs it",
    "promise": "budgets",
    "max_batch": "batching and admission",
    "cache_megabytes": "weight cache",
    "max_body_megabytes": "limits on what a client may send",
    "api_keys": "who may call",
    "candidate": "trying a new bundle",
    "answer_cache_megabytes": "remembering answers",
    "record": "observability",
    "drain_grace_s": "shutting down, connections",
}
_SECRETS = ("api_keys", "metrics_keys", "admin_keys")
_PREFIX = "SAN_"
_FOREIGN = ("SAN_SERVE_", "SAN_RAY_")
_ALIKE = 0.8
"""Similarity (difflib) from which a name counts as misspelt: one wrong letter in five."""
_SWITCH_INTERVAL_S = 0.0005
_BACKLOG = 2048
EXIT_ENGINE_LOST = 3
"""The engine's device is lost: whatever supervises the process should start it again."""
_EXIT_WITHIN_S = 5.0
"""After a loss: long enough for the requests inside to be told."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option per setting, with its default and its variable."""
    parser.usage = "san serve [BUNDLE] [--port N] [--option VALUE …]"
    parser.add_argument(
        "positional_bundle", nargs="?", type=Path, metavar="BUNDLE", help="the same as --bundle"
    )
    # A key on a command line is a key in every process list.
    add_fields(parser, Settings, groups=_GROUPS, without=_SECRETS, env_prefix=_PREFIX)
    fields = Settings.model_fields
    keys = [f"  {_PREFIX}{name.upper():<13} {fields[name].description}" for name in _SECRETS]
    parser.epilog = "\n".join(["in the environment only:", *keys, "", EXAMPLES])


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Options over environment over defaults; a wrong one is one sentence."""
    _check_variables()
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        option = f"--{name.replace('_', '-')}" if name in given else f"{_PREFIX}{name.upper()}"
        raise SettingsError(f"{option} {what_is_wrong(first)}.") from error


def _check_variables() -> None:
    """Refuse a variable that looks like a misspelt setting: it would be ignored in silence.

    Others with the same prefix are left alone: compose has its own, and Kubernetes sets
    `SAN_SERVE_PORT` and the like wherever a service is called san-serve.
    """
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known and not name.startswith(_FOREIGN):
            for near in difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE):
                raise SettingsError(f"{name} is not a setting. Did you mean {near}?")


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    given = given_fields(args)
    if args.positional_bundle is not None:
        given.setdefault("bundle", args.positional_bundle)
    settings = read_settings(given)
    # Until the server takes it there is no bundle that could be read again, and nothing to die of.
    signal.signal(signal.SIGHUP, lambda *_: None)

    # Late: --help needs none of it.
    from san_core.bundle import read_manifest
    from service.observability.logs import configure

    read_manifest(settings.bundle)  # a wrong path is told before anything starts
    configure(settings.log_level, settings.log_format)
    # A decoder that holds the interpreter for its usual 5 ms would make a 5 ms budget a lottery.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _check_grpc(settings)
    if settings.workers == 1:
        return serve(settings)

    from service.http.connection.server import server_options
    from service.processes.supervisor import supervise
    from service.runtime.cgroups import memory_room

    _bound(settings.host, settings.port).close()  # a port that is taken is one sentence here too
    return supervise(partial(make_worker, settings), memory_room, **server_options(settings))


def make_worker(settings: Settings) -> tuple[ASGIApp, type[asyncio.Protocol]]:
    """The application and the protocol of one of several processes, made in that process."""
    from service.app import make_app, make_service
    from service.http.connection.server import make_protocol
    from service.observability.logs import configure

    configure(settings.log_level, settings.log_format, os.getpid())
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    service = make_service(settings)
    service.on_fatal = _exit_if_lost  # the supervisor starts another
    return make_app(settings, service, ready_first=True), make_protocol(settings)


def serve(settings: Settings) -> int:
    """Serve in this process until told to stop."""
    begun = time.perf_counter()
    listener = _bound(settings.host, settings.port)
    from service.app import make_app, make_service
    from service.http.connection.server import Server, server_config

    address = _address(listener)
    logger.info("running on %s", address)
    service = make_service(settings)
    app = make_app(settings, service)
    server = Server(server_config(app, settings), service, settings.drain_grace_s)

    def give_up(error: BaseException) -> None:
        server.should_exit = True
        _exit_if_lost(error)

    def announce() -> None:
        facts = {"ready_s": round(time.perf_counter() - begun, 3), "address": address}
        logger.info("ready", extra={"facts": facts})

    service.on_fatal = give_up
    service.on_ready = announce
    server.run(sockets=[listener])
    if service.lost:
        # At once: what a lost device still owes would be waited for.
        logging.shutdown()
        os._exit(EXIT_ENGINE_LOST)
    if service.failure:
        raise SettingsError(service.failure)
    return 0


def _exit_if_lost(error: BaseException) -> None:
    """End the process soon, even if it waits for a device that never answers again."""
    if isinstance(error, EngineLostError):
        timer = threading.Timer(_EXIT_WITHIN_S, os._exit, [EXIT_ENGINE_LOST])
        timer.daemon = True
        timer.start()


def _check_grpc(settings: Settings) -> None:
    """What would stop gRPC is said before anything starts."""
    if settings.grpc_port is None:
        return
    if find_spec("grpc") is None:
        raise SettingsError("gRPC needs its extra: pip install 'san-serve[grpc]'.")
    _bound(settings.host, settings.grpc_port, "--grpc-port").close()


def _bound(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket on the address, before anything else is begun; one sentence if it cannot be had."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(_BACKLOG)  # early connections wait
    except OSError as error:
        made.close()
        raise SettingsError(_why_not(host, port, option, error)) from error
    return made


def _why_not(host: str, port: int, option: str, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} is taken: stop what listens there, or name another with {option}."
        case errno.EACCES:
            return f"Port {port} needs rights that this user does not have; name one from 1024 up."
    return f"Cannot listen on {host}: {error.strerror or error}. Name another address with --host."


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
