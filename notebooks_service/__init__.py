"""Room for JupyterHub's configuration, authenticator, spawner and contents hooks."""
