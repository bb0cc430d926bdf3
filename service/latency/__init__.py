"""How long things take on this host."""
