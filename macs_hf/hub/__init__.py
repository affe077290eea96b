"""Reaching the Hugging Face Hub: what is local and what is not, deadlines, reasons in plain words."""
