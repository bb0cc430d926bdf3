"""The server, its connections, and HTTP as it comes in."""
