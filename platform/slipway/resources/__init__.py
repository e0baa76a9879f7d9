"""Resources of a `Client`: one file for each kind of object on the server."""
