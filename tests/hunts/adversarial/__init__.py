"""The parts of tests/hunts/adversary.py: random statements, the sessions they are sent to, and what must not differ."""
