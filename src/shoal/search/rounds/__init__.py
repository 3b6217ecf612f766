"""The search loop: propose recipes, train them to a rung, drop the worse, continue."""
