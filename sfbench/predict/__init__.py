"""What more devices would give, from what was measured."""
