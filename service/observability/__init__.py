"""Facts recorded in dataclasses, and the code that exports them."""
