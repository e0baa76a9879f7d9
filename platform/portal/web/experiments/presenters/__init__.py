"""Presenters: experiments and runs."""
