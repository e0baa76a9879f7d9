"""Room for registered models, versions, aliases, stages, gates and lineage."""
