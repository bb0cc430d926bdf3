"""HTTP routes: thin; everything they call works without HTTP."""
