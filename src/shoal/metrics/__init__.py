"""Tasks, losses and scores."""
