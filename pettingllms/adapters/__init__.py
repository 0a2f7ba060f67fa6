"""Views of our environments for other libraries, each in a module of its own."""
