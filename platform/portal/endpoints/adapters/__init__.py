"""Foreign systems of this room, one file each."""
