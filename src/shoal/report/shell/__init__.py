"""Shared by all pages: markup, figures, scales, number formats."""
