"""Room for the process inside an endpoint replica: load, warm, batch, predict."""
