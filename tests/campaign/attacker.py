"""`python -m tests.campaign.attacker PORT NAME SECONDS`: one attack, from a process of its own.

It prints "ready", waits for a line, attacks, and prints as JSON how many connections it opened and
which statuses it was answered with.

A real attacker has a computer of its own. Here it shares the service's cores, so it runs at the
lowest priority: what it takes is meant to be the service's time, not the processor's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.campaign.images import IMAGES
from tests.campaign.wire import WIRE, attempts, image_flood, statuses

CONNECTIONS = 4


def main() -> None:
    """Prepare, say so, wait for a line, attack on four connections."""
    port, name, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    attack = image_flood(name) if name in IMAGES else WIRE[name]
    os.nice(19)  # only now: a large image takes a while to make
    with suppress(OSError):  # Linux shares time between sessions first; not every kernel does
        Path("/proc/self/autogroup").write_text("19")
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=attack, args=(port, end)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"attempts": next(attempts), "statuses": statuses}))


if __name__ == "__main__":
    main()
