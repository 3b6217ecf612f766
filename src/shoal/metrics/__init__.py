"""Tasks, losses and metrics."""
