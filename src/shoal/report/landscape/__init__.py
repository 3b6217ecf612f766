"""The page of a landscape: 100,000 networks on one table."""
