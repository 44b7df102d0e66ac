"""The only room that knows PySpark."""
