"""`python -m benchmarks` is `python -m benchmarks.all`."""

import sys

from benchmarks.all import main

sys.exit(main())
