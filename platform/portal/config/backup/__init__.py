"""One file that holds an installation: its rows, keys and bytes; and the way back from it."""
