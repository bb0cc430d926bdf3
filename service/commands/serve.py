"""`san serve`: every setting is an option here and a `SAN_*` variable in the environment."""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from san_core.command_line import add_fields, given_fields
from service.errors import SettingsError
from service.settings import Settings

if TYPE_CHECKING:
    from service.processes.crew import Crew

HELP = "Serve a bundle over HTTP: POST /classify?budget_ms=20 with an image as the body."

_GROUPS = {
    "bundle": "what is served, and where",
    "engine": "what runs it",
    "quantile": "budgets",
    "max_batch": "batching and admission",
    "cache_megabytes": "weight cache",
    "max_body_megabytes": "limits on what a client may send",
    "api_keys": "who may call",
    "agreement_fraction": "what is observed",
    "drain_grace_s": "life",
}
_SECRETS = ("api_keys", "metrics_keys", "admin_keys")
_PREFIX = "SAN_"
_FOREIGN = ("SAN_SERVE_", "SAN_RAY_")
_ALIKE = 0.8
"""Similarity (difflib) from which a name counts as misspelt: one wrong letter in five."""
_SWITCH_INTERVAL_S = 0.0005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option per setting, with its default and its variable."""
    parser.add_argument(
        "positional_bundle", nargs="?", type=Path, metavar="BUNDLE", help="the same as --bundle"
    )
    # A key on a command line is a key in every process list.
    add_fields(parser, Settings, groups=_GROUPS, without=_SECRETS, env_prefix=_PREFIX)
    fields = Settings.model_fields
    parser.epilog = "Keys themselves come from the environment only. " + " ".join(
        f"{_PREFIX}{name.upper()}: {fields[name].description} (default none)." for name in _SECRETS
    )


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Options over environment over defaults; a wrong one is one sentence."""
    _check_variables()
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        option = f"--{name.replace('_', '-')}" if name in given else f"{_PREFIX}{name.upper()}"
        raise SettingsError(f"{option}: {first['msg']}, not {first['input']!r}.") from error


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

    # Late: torch takes seconds to import, and --help needs none of it.
    from san_core.bundle import read_manifest
    from service.observability.logs import configure

    read_manifest(settings.bundle)  # a wrong path is told before anything starts
    configure(settings.log_level, settings.log_format)
    # A decoder that holds the interpreter for its usual 5 ms would make a 5 ms budget a lottery.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if settings.workers == 1:
        return serve(settings)

    import service.app  # noqa: F401 (workers share what is loaded before they are forked)
    from service.processes.supervisor import Supervisor

    def work(crew: Crew, listener: socket.socket) -> int:
        configure(settings.log_level, settings.log_format, crew.index)
        return serve(settings, crew, listener)

    return Supervisor(settings.host, settings.port, settings.workers, work).run()


def serve(
    settings: Settings, crew: Crew | None = None, listener: socket.socket | None = None
) -> int:
    """Serve in this process until told to stop."""
    from service.app import make_app, make_service
    from service.http.server import Server, server_config

    service = make_service(settings, crew=crew)
    app = make_app(settings, service)
    server = Server(server_config(app, settings), service, settings.drain_grace_s)

    def give_up(_: BaseException) -> None:
        server.should_exit = True

    service.on_fatal = give_up
    server.run(sockets=[listener] if listener else None)
    if service.failure:
        raise SettingsError(service.failure)
    return 0
