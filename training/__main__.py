"""`python -m training COMMAND …` is `san COMMAND …`, for torchrun."""

import argparse
import sys
from importlib import import_module

from san_core.errors import SanError

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

COMMANDS = ("train", "evaluate", "calibrate", "report", "lift", "quantize")


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m training {{{','.join(COMMANDS)}}} …\n")
        return 2
    name, *rest = arguments
    module = import_module(f"training.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"san {name}", description=module.HELP)
    module.add_arguments(parser)
    try:
        code: int = module.run(parser.parse_args(rest))
    except SanError as error:
        sys.stderr.write(f"san {name}: {error}\n")
        return 2
    except OSError as error:  # a full disk, a folder that may not be written, …
        sys.stderr.write(f"san {name}: The system refused: {error}.\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
