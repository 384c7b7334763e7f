"""A real control plane on one machine, built from Go modules: see `build`."""
