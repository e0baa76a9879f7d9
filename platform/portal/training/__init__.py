"""Training jobs: code snapshots, what exactly was submitted, strategies, checkpoints, clones."""
