"""What runs Muster in a cluster: the image and the manifests; `e2e` builds a real control plane to try them on."""
