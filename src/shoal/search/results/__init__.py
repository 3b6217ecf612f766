"""The results of a search: the model, the leaderboard, explanations, and their files."""
