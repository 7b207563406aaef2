"""What hotmax shows: leaves of the tree, which nothing else imports."""
