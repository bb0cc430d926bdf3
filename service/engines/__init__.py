"""What runs a main network: one small protocol, one module per engine."""
