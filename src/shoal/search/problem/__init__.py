"""What a search learns from: rows, targets, groups, folds, and the matrices made of them."""
