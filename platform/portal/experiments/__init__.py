"""Room for runs, metrics and artifacts, behind the Tracker port."""
