"""What people would use instead: one file per peer, run by an environment of its own.

`registry.py` says how each is installed, started and probed; `network.py` is the network that all
of them serve. The services import nothing of ours but that file.
"""
