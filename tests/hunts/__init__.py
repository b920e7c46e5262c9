"""Programs that look for defects at random for as long as they run, and mutants that prove that they find some."""
