"""From a bundle's file to a deployment that serves it."""
