"""Room for versioned data with schema, statistics and labels."""
