"""Bytes and where they rest: content-addressed blobs, archives, signed URLs, retention."""
