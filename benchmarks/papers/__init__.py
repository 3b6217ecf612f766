"""One folder for each seed paper: its claims beside our results."""
