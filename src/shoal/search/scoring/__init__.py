"""How good candidates and ensembles are: selection, honest scores and their intervals."""
