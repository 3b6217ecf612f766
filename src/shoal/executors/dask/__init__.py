"""The workers of a Dask cluster."""
