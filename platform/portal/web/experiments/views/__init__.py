"""Views: experiments and runs."""
