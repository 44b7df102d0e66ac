"""Adding the column that a table lacks which was made before us, or by others."""
