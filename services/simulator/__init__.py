"""A simulated cluster: a small Kubernetes API over HTTP with kubelets and workload controllers.

`cluster` is the entry (`SimulatedCluster`), `__main__` the same as a process. `store` keeps objects under one
revision, `api` has the verbs, `server` the paths, `watches` lists and watches, `kubelet` and `controllers` what moves
by itself, and `faults` what a test has go wrong. What an API server makes of an object at its creation, and refuses,
begins in `admission`. Without aiohttp or an event loop work `workloads` (what pods a Deployment makes), `manifests`
(YAML files) and `traces` (CSV files). The contract tests in tests/contract hold on this API and on a real
kube-apiserver.
"""
