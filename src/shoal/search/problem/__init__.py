"""The input of a search: rows, targets, groups, folds, and the matrices made of them."""
