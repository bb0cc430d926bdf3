"""Lifting a pretrained CNN into a Scale Adaptive Network."""
