"""The ``san`` command: a thin dispatcher over the commands of the three packages."""
