"""Benchmarks of models in use."""
