"""What all benchmarks share: the machine, measuring, results as JSON and Markdown, plots."""
