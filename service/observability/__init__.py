"""Facts, recorded in dataclasses; and beside them what exports them."""
