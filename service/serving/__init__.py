"""A bundle in service, and a request's way through it."""
