"""Starting workers, watching them, and restarting them from a checkpoint."""
