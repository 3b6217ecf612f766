"""The page of a plan: what more nodes would cost, what they would do to accuracy, whether they pay."""
