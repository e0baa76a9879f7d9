"""Use cases of experiments: delete, restore, destroy, and read artifacts."""
