"""Benchmarks of one network over many workers."""
