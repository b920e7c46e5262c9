"""What tests, hunts and suites share: servers, poolers, wire protocols, loads. It knows no test."""
