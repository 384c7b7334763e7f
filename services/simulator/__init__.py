"""A simulated cluster: a small Kubernetes API over HTTP with kubelets and workload controllers.

`cluster` is the entry (`SimulatedCluster`), `__main__` the same as a process. `store` keeps objects under one revision,
`api` has the verbs, `server` the paths, `watches` lists and watches, `kubelet` and `controllers` what moves by itself.
Without aiohttp or an event loop work `workloads` (what pods a Deployment makes), `manifests` (YAML files) and `traces`
(CSV files). The contract tests in tests/contract hold on this API and on a real kube-apiserver.
"""
