"""What one can do with thousands of networks besides a search. Each tool is one file on top of `Population`."""
