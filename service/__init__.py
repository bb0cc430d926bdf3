"""san-serve: image classification within a latency budget, over HTTP."""
