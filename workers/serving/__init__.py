"""Code that gateway and replica share: the frames between them and the error responses."""
