"""A notebook server: JupyterLab in a workload, signed in through the Hub, honest about its work."""
