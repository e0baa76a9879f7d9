"""The log of captured predictions: file format, reader, and conversion to Arrow."""
