"""The distribution of models for one table."""
