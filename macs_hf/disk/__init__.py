"""The files of a run: whose folder it is, written whole, without secrets and machine paths, and room for them."""
