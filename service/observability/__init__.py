"""Facts are recorded in dataclasses here and exported to Prometheus, logs and traces beside them."""
