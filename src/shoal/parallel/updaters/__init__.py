"""Updaters: what each worker does in a round, one file for each strategy."""
