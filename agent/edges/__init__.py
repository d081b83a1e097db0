"""Calls to the outside: one outside system a module, little logic."""
