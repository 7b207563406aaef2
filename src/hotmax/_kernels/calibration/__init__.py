"""What calibration asks of rows of logits and their labels."""
