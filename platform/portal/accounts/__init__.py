"""People, teams, projects (the tenant), roles, tokens, secrets, audit, single sign-on."""
