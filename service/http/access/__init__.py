"""What a client may do: keys, origins, limits, and what each route declares about them."""
