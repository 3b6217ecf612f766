"""The core, usable alone: members, their rows, training on an engine, results, files."""
