"""Inference pools: what their endpoints run on, which server they are, and what follows for who routes to them. Pure."""
