"""goharvest's outbox table, taken over as it is: text keys and values, headers as two arrays of equal length."""
