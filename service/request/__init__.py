"""One request: what it asks for, how long it may take, what became of it, its answer."""
