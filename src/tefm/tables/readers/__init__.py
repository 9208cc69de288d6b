"""Reading tables: one module per format, and `table.py`, which chooses among them."""
