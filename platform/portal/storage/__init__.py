"""Byte storage: content-addressed blobs, archives, signed URLs, retention."""
