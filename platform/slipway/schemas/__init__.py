"""Wire schemas shared by the portal, the SDK and the agents."""
