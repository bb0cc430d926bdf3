"""Sending requests: photos, arrivals, connections, turns."""
