"""Version 1 of the REST API: one file a noun; each operation parses, calls one service, answers."""
