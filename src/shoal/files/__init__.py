"""Files that appear whole or not at all, and readers that trust nothing."""
