"""One file for each kind of place where bytes can rest, and a fake of them."""
