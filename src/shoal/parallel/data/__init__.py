"""Rows for workers: data sets by name, tables, loading, and which worker has which rows."""
