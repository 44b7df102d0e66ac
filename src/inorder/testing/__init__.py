"""For our tests and yours: the checker that proves the guarantees."""
