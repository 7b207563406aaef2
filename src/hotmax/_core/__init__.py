"""What every function shares, each once: arrays, rows, checks, threads, memory, files."""
