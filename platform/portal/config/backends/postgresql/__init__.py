"""PostgreSQL: bounded waits for connections, locks and a server that does not answer."""
