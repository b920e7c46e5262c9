"""Programs that look for defects for as long as they are let, and those that prove that they find them."""
