"""Safe unpacking of untrusted archives, and reproducible packing."""
