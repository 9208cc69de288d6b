"""Tables come in through here: one module per file format."""
