"""A page in the browser over the same functions as the command line: audit a classifier, try it, compare runs."""
