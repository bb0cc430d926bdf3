"""``san COMMAND …``: find the command's module, import it, run it.

Only the chosen command is imported, so ``san --help`` answers without loading torch.
A command is a module with ``HELP``, ``add_arguments(parser)`` and ``run(args) -> int``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from typing import NamedTuple, Protocol, cast

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


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


COMMANDS: Mapping[str, Command] = {
    "serve": Command("service.commands.serve", "Serve a bundle over HTTP."),
    "classify": Command("san_core.commands.classify", "Classify images with a bundle."),
    "describe": Command("san_core.commands.describe", "Show what a bundle holds."),
    "export": Command("san_core.commands.export", "Write one main network as ONNX or safetensors."),
    "import-official": Command(
        "san_core.commands.import_official", "Turn a checkpoint of the paper's code into a bundle."
    ),
    "train": Command("training.commands.train", "Train a scale adaptive network from images."),
    "evaluate": Command(
        "training.commands.evaluate", "Measure accuracy at every resolution and mode."
    ),
    "calibrate": Command(
        "training.commands.calibrate", "Calibrate batch norm statistics for more resolutions."
    ),
    "report": Command("training.commands.report", "Make the tables and figures of an evaluation."),
    "lift": Command("training.commands.lift", "Lift a pretrained CNN into a bundle."),
    "quantize": Command(
        "training.commands.quantize", "Add int8 quantization parameters to a bundle."
    ),
}


def version() -> str:
    """The version of the installed distribution."""
    return metadata.version("san-serve")


def build_parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The top-level parser: it knows the commands' names and sentences, not their arguments."""
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in commands.items()]
    parser = argparse.ArgumentParser(
        prog="san",
        usage="san [--help] [--version] COMMAND …",
        description="One checkpoint, any input resolution, a latency budget per request.",
        epilog="\n".join(["commands:", *lines, "", "`san COMMAND --help` explains one of them."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"san {version()}")
    parser.add_argument(
        "command", choices=list(commands), metavar="COMMAND", help="one of those below"
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def run_command(name: str, command: Command, arguments: Sequence[str]) -> int:
    """Import one command's module and run it; an error of ours or the system's is one sentence."""
    # Late, so that --help and --version pay for nothing of san_core.
    from san_core.errors import SanError

    try:
        module = cast(CommandModule, import_module(command.module))
        parser = argparse.ArgumentParser(prog=f"san {name}", description=module.HELP)
        module.add_arguments(parser)
        return module.run(parser.parse_args(arguments))
    except SanError as error:
        print(f"san {name}: {error}", file=sys.stderr)
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
