"""The relay: connections to nodes that cannot be dialled, over one connection from their agent."""
