"""A real Kubernetes control plane for the tests, made of Kubernetes' own programs."""
