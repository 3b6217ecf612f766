"""Folders of runs, for search, training and fine-tuning alike."""
