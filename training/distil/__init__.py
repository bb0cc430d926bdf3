"""Distillation without labels."""
