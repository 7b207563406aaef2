"""The explorer: one page in which softmax can be played with, and a server for users' files."""
