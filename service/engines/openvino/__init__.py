"""OpenVINO on CPUs: its graphs, its precisions, what it keeps on disk."""
