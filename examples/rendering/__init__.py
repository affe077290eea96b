"""Parts of README.md and docs/ as Markdown, made from committed results."""
