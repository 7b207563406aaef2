"""Random numbers, cuts and draws."""
