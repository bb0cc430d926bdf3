"""From a request's body to the images in it."""
