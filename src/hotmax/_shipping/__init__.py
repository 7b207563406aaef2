"""What is compiled ahead of the first call: for this machine by `hotmax compile`, and for wheels.

examples.py   example values for every parameter of every public function, by its name
calls.py      the calls that these make, and the docstrings' examples
build.py      processes that make them, and what they compiled
"""
