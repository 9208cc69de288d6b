"""Has the data changed since the model was fitted? Counts of new records compared with those of held-out ones."""
