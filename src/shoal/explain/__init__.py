"""Which columns matter, what they do, and why a row is predicted as it is: pure functions of a fitted model."""
