"""CUDA: main networks as graphs on a GPU, and what can go wrong with one."""
