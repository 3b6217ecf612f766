"""Modules of PyTorch: heads on one backbone, modules as one."""
