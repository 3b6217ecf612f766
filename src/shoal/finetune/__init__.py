"""Fine-tuning of language models over many workers, with the graphs that tell how it went.

The transformers library and its Trainer do the work; our launcher starts them, watches them and goes on after a loss.
Nothing is imported here: `shoal --help` must not wait for torch.
"""
