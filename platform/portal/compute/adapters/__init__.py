"""Foreign systems of the room: one file each, and a fake."""
