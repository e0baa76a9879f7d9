"""App of registered models, versions, aliases, stages, gates and lineage."""
