"""The commands of `macs-hf`: they parse, call one function and print."""
