"""More uses of thousands of networks. Each tool is one file on top of `Population`."""
