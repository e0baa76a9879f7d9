"""Views: accounts: sign-in, own settings, people."""
