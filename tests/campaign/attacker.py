"""`python -m tests.campaign.attacker PORT NAME SECONDS [CONNECTIONS]`: an attack, in a process.

It prints "ready", waits for a line, attacks, and prints as JSON how many connections it opened and
which statuses it was answered with.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from tests.campaign.images import IMAGES
from tests.campaign.priority import idle_priority
from tests.campaign.wire import WIRE, attempts, image_flood, statuses

CONNECTIONS = 4


def main() -> None:
    """Prepare, say so, wait for a line, attack on four connections."""
    port, name, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    connections = int(sys.argv[4]) if len(sys.argv) > 4 else CONNECTIONS
    attack = image_flood(name) if name in IMAGES else WIRE[name]
    with idle_priority():  # only now: a large image takes a while to make
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=attack, args=(port, end)) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({"attempts": next(attempts), "statuses": statuses}))


if __name__ == "__main__":
    main()
