"""The top of the house: settings, addresses, policies of library views, processes."""
