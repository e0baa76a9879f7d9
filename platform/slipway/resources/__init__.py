"""What a `Client` reaches: one file for each kind of object on the server."""
