"""A file or a frame to typed columns."""
