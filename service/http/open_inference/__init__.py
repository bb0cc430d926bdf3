"""The Open Inference Protocol v2 as pure functions: bytes to typed requests and back. No HTTP."""
