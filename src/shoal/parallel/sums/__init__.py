"""Gradients of one batch, summed over the workers, and the step of the optimiser along the sum."""
