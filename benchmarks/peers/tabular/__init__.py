"""The search against its peers on real tables."""
