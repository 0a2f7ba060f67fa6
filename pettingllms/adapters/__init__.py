"""Views of our environments for other libraries, one module each."""
