"""What strategies do to accuracy: real training on virtual nodes, and the gradient noise scale."""
