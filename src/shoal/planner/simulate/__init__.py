"""Effects of strategies on accuracy: real training on virtual nodes, and the gradient noise scale."""
