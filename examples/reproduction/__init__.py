"""Grids, and what turns their runs into tables, figures, claims and pages; see `examples/README.md`."""
