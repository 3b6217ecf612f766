"""Benchmarks of the search: speed, budget, honest scores, start-up."""
