"""The only reader of tables: the portal examines with it what jobs read with it.

It needs pyarrow and knows neither the network nor a database. `TableReader` turns the files of a
table into record batches of one schema, and reports each row that it leaves out.
"""

from slipway.tables.reader import TableReader

__all__ = ["TableReader"]
