"""The page that says why rows are predicted as they are."""
