"""hotmax in the place of functions of other libraries."""
