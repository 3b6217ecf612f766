"""The page of a fine-tuning run."""
