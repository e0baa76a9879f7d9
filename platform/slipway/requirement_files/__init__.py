"""Requirements as pip reads them: one parser for the portal and for nodes, without dependencies."""
