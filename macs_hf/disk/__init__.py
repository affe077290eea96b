"""The files of a run: its folder, atomic writes, free space; no secrets and no machine paths in them."""
