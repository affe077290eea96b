"""Datasets: where they are, their splits and columns, decoding and augmenting images, streams."""
