"""Services of the app: keyword-only functions, each one transaction, each audited."""
