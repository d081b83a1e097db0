"""The manifests, applied to a real API server as they are."""
