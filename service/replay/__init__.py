"""The scheduling code on a virtual clock: traces, a model of the machine, rival policies."""
