"""Talal K. and Beena A.: parallelization of neural networks. When does parallel training pay?"""
