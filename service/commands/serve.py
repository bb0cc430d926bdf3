"""`san serve`: every setting is an option here and a `SAN_*` variable in the environment."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from san_core.errors import SanError
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
_SWITCH_INTERVAL_S = 0.0005


class SettingsError(SanError):
    """A setting cannot be used."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option per setting, with its default and its variable."""
    parser.add_argument(
        "positional_bundle", nargs="?", type=Path, metavar="BUNDLE", help="the same as --bundle"
    )
    parser.allow_abbrev = False  # --api-keys must not pass for --api-keys-file
    group: Any = parser
    for name, field in Settings.model_fields.items():
        if name in _GROUPS:
            group = parser.add_argument_group(_GROUPS[name])
        if name in _SECRETS:
            # A key on a command line is a key in every process list.
            continue
        group.add_argument(f"--{name.replace('_', '-')}", **_option(name, field))
    fields = Settings.model_fields
    parser.epilog = "Keys themselves come from the environment only. " + " ".join(
        f"SAN_{name.upper()}: {fields[name].description} (default none)." for name in _SECRETS
    )


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    default = "none" if field.default is None else field.default
    bounds = _bounds(field)
    options: dict[str, Any] = {
        "dest": name,
        "default": None,
        "help": f"{field.description} (default {default}{bounds}; SAN_{name.upper()})".replace(
            "%", "%%"
        ),
    }
    kind = _kind(field.annotation)
    if get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    elif kind is bool:
        options["action"] = argparse.BooleanOptionalAction
    else:
        options["metavar"] = {int: "N", float: "X", Path: "FILE"}.get(kind, "TEXT")
    return options


def _kind(annotation: Any) -> Any:
    """The type itself, without `| None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation


def _bounds(field: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    found = [
        f"{sign} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return f"; {' and '.join(found)}" if found else ""


def read_settings(given: dict[str, Any]) -> Settings:
    """Options over environment over defaults; a wrong one is one sentence."""
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        option = f"--{name.replace('_', '-')}" if name in chosen else f"SAN_{name.upper()}"
        raise SettingsError(f"{option}: {first['msg']}, not {first['input']!r}.") from error


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    given = {name: value for name, value in vars(args).items() if name in Settings.model_fields}
    given["bundle"] = given["bundle"] or args.positional_bundle
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
