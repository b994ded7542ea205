"""The computing pack: measures the source code of a folder, one task a file."""
