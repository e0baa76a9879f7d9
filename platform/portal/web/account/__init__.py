"""Pages of accounts: sign-in, own settings, people."""
