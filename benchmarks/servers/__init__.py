"""What is measured: our service, the peers' contest, networks, child processes."""
