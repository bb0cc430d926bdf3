"""Exit with 0 if the service in this container is ready, with 1 if not."""

import os
import sys
import urllib.request


def ready(port: str) -> bool:
    """Whether /readyz says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2.5) as answer:
            return bool(answer.status == 200)
    except OSError as error:  # refused, timed out, or an HTTP status that means no
        sys.stdout.write(f"{error}\n")
        return False


if __name__ == "__main__":
    sys.exit(not ready(os.environ.get("SAN_PORT", "8000")))
