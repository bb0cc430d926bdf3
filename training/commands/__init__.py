"""The training commands of `san`; each module has HELP, add_arguments and run."""
