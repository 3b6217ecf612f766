"""Simulation of parallelization of deep neural networks by dividing data."""
