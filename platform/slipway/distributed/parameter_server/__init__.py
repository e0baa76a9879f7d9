"""A parameter server: some ranks hold the parameters, the others compute gradients."""
