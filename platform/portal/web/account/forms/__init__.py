"""Forms: accounts: sign-in, own settings, people."""
