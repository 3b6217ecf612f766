"""What the tools of `shoal.tools` are worth on real tables."""
