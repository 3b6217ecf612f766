"""What a search gives back: the model, the leaderboard, explanations, and their files."""
