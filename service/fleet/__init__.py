"""What a replica tells those who send requests to several, and how they choose among them."""
