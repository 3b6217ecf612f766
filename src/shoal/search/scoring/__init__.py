"""Scores of candidates and ensembles: selection, honest scores and their intervals."""
