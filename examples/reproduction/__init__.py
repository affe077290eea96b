"""The paper's grid and numbers, and what turns reports into tables, figures and a ledger; see `examples/README.md`."""
