"""The screen, progress, and Ctrl-C."""
