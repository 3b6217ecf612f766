"""Fitted models: prediction, files, export."""
