"""The cost model: seconds, bytes and memory of a strategy on n nodes, from what was measured."""
