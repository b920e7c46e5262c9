"""The parts of tests/hunts/adversary.py: random statements, the sessions that send them, and the comparison."""
