"""What operators ask for: status, one key through every hop, the doctor, the tables."""
