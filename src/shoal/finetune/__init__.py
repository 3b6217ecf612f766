"""Fine-tuning of language models with several worker processes, and a report of the run.

The Trainer of the transformers library trains; Shoal's launcher starts and watches the workers and replaces lost ones.
Nothing is imported here: `shoal --help` must not wait for torch.
"""
