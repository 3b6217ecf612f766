"""Kamra, Goyal, Seo and Zois: parallel gradient descent for multilayer feedforward networks."""
