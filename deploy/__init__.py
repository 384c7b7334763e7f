"""What runs Muster in a cluster: the image, the manifests and what renders them; `e2e` builds a real one to try them on."""
