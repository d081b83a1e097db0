"""The catalogue of accelerators: facts and figures with their sources."""
