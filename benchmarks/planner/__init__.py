"""Benchmarks of the planner: what it predicts against what happens, and against another simulator."""
