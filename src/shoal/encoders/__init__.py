"""Typed columns to the inputs of networks, fitted on the training rows of a fold."""
