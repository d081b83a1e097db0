"""Readers of hardware; nothing here knows of Kubernetes."""
