"""Tables of the documents, each from its result file."""
