"""softmax and its family, row by row."""
