"""What a replica tells routers that send requests to several, and how they choose among them."""
