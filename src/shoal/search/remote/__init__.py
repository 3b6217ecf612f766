"""Training on workers and from the journal: shards, payloads, and who trains what."""
