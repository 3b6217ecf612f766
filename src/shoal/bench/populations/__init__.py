"""Benchmarks of the population engines."""
