"""The search: the best network for a table of data, with an honest score, in one fit."""
