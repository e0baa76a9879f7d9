"""Django's database backends, with limits on how long a request waits for them."""
