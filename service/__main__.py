"""`python -m service`: the same as `san serve`."""

import argparse
import sys

from san_core.errors import SanError
from service.commands import serve


def main() -> int:
    """Parse, serve, and turn an error of ours into one sentence."""
    parser = argparse.ArgumentParser(prog="python -m service", description=serve.HELP)
    serve.add_arguments(parser)
    try:
        return serve.run(parser.parse_args())
    except SanError as error:
        print(f"san serve: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
