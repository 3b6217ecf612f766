"""Explanations, as pure functions of a fitted model: important columns, their effects, the parts of a prediction."""
