"""What gateway and replica share: the frames between them and the errors people see."""
