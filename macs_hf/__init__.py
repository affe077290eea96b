"""Margin and Consistency Supervision for Hugging Face image classifiers."""

__version__ = "0.1.0"
