"""Certainty of predictions: intervals and class sets from scores of held-out rows, and unusual rows."""
