"""``san COMMAND …``: find the command's module, import it, run it.

Only the chosen command is imported, so ``san --help`` answers without loading torch.
A command is a module with ``HELP``, ``add_arguments(parser)`` and ``run(args) -> int``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from typing import NamedTuple, Protocol, cast

from san_cli.parser import Parser, suggestion

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


_OPTIONAL = re.compile(r"(?P<name>[\w-]+).*; extra == ['\"](?P<extra>\w+)['\"]")
"""A requirement of an extra, as the distribution's metadata has it."""


class CommandModule(Protocol):
    """What a command's module offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code."""


class Command(NamedTuple):
    """Where a command lives, and the sentence ``san --help`` shows for it."""

    module: str
    help: str
    group: str = "commands"


COMMANDS: Mapping[str, Command] = {
    "serve": Command("service.commands.serve", "Serve a bundle over HTTP.", "use it"),
    "classify": Command(
        "service.commands.classify", "Classify images, within a budget if you name one.", "use it"
    ),
    "replay": Command(
        "service.commands.replay",
        "Replay traffic on a model of a machine: plan capacity, compare policies.",
        "use it",
    ),
    "lift": Command(
        "training.commands.lift", "Turn a pretrained CNN into a bundle.", "your own network"
    ),
    "train": Command(
        "training.commands.train",
        "Teach a lifted network smaller sizes, or train one from images.",
        "your own network",
    ),
    "prepare": Command(
        "san_cli.prepare",
        "Add int8 and measured accuracy to a bundle, in one go.",
        "your own network",
    ),
    "evaluate": Command(
        "san_cli.evaluate",
        "Measure accuracy at every resolution and mode.",
        "one step at a time",
    ),
    "quantize": Command(
        "training.commands.quantize", "Add int8 to a bundle.", "one step at a time"
    ),
    "calibrate": Command(
        "training.commands.calibrate",
        "Calibrate batch norm for more resolutions.",
        "one step at a time",
    ),
    "temper": Command(
        "training.commands.temper",
        "Make a bundle's scores mean what they say, without labels.",
        "one step at a time",
    ),
    "describe": Command("san_core.commands.describe", "Show what a bundle holds.", "look inside"),
    "export": Command(
        "san_core.commands.export",
        "Write the network of one resolution as ONNX or safetensors.",
        "look inside",
    ),
    "import-official": Command(
        "san_core.commands.import_official",
        "Turn a checkpoint of the paper's code into a bundle.",
        "research",
    ),
    "report": Command(
        "training.commands.report",
        "Reproduce the paper at small scale, or draw a run's curves.",
        "research",
    ),
}


def version() -> str:
    """The version of the installed distribution."""
    return metadata.version("san-serve")


def build_parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The top-level parser: it knows the commands' names and sentences, not their arguments."""
    width = max(map(len, commands))
    groups = dict.fromkeys(command.group for command in commands.values())
    lines = []
    for group in groups:
        lines += [f"{group}:"]
        lines += [
            f"  {name:<{width}}  {command.help}"
            for name, command in commands.items()
            if command.group == group
        ]
    parser = Parser(
        prog="san",
        usage="san [--help] [--version] COMMAND …",
        description="Image classification within a latency budget: one checkpoint, any resolution.",
        epilog="\n".join([*lines, "", "`san COMMAND --help` explains one of them."]),
    )
    parser.add_argument("--version", action="version", version=f"san {version()}")
    parser.add_argument("command", metavar="COMMAND", help="one of those below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def missing_extra(module: str | None) -> str | None:
    """The smallest extra of this distribution that brings a module which is not installed."""
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("san-serve") or ():
        if found := _OPTIONAL.match(requirement):
            extras.setdefault(found["extra"], []).append(found["name"])
    wanted = (module or "").partition(".")[0]
    bringing = [extra for extra, names in extras.items() if wanted in names]
    return min(bringing, key=lambda extra: len(extras[extra]), default=None)


def run_command(name: str, command: Command, arguments: Sequence[str]) -> int:
    """Import one command's module and run it; an error of ours or the system's is one sentence."""
    # Late, so that --help and --version pay for nothing of san_core.
    from san_core.errors import SanError

    try:
        module = cast(CommandModule, import_module(command.module))
        parser = Parser(
            prog=f"san {name}", description=module.HELP, epilog=getattr(module, "EXAMPLES", None)
        )
        module.add_arguments(parser)
        return module.run(parser.parse_args(arguments))
    except SanError as error:
        print(f"san {name}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except ModuleNotFoundError as error:
        extra = missing_extra(error.name)
        if extra is None:
            raise
        print(
            f"san {name}: This needs {error.name}: pip install 'san-serve[{extra}]'.",
            file=sys.stderr,
        )
        return EXIT_ERROR
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a folder that may not be written, …
        print(f"san {name}: The system refused: {error}.", file=sys.stderr)
        return EXIT_ERROR


def dispatch(arguments: Sequence[str], commands: Mapping[str, Command]) -> int:
    """Run the command that the arguments name and return the exit code."""
    parser = build_parser(commands)
    try:
        if arguments:
            chosen = parser.parse_args(arguments)
            if chosen.command not in commands:
                hint = suggestion(chosen.command, commands)
                parser.error(f"There is no command {chosen.command!r}{hint}")
            code = run_command(chosen.command, commands[chosen.command], chosen.rest)
        else:
            print(parser.format_help(), end="")
            code = EXIT_ERROR
        sys.stdout.flush()  # a closed pipe must show here, not at interpreter exit
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`san describe | head`). Point stdout at nothing, or the
        # interpreter complains once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


def main() -> int:
    """Entry point of the ``san`` console command."""
    return dispatch(sys.argv[1:], COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
