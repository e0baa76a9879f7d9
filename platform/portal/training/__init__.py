"""Room for training jobs: code snapshots, strategies, checkpoints."""
