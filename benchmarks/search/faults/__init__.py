"""What happens to a search while it runs, and whether it ends with the same bytes."""
