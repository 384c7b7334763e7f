"""NATS in the cluster, as text: three servers with a disk each, TLS, a user for each service.

The servers find each other by the names that a StatefulSet gives its pods, and take a route only from a server whose
certificate has one of these names. Clients go by the same names; nobody goes by addresses. Every acknowledged message is
on the disks of two servers at least. One server may go at any time, and a disruption budget keeps it at one.

Passwords stand in one Secret for each user: the servers read all of them, a service only its own. The certificate comes
from cert-manager (`deploy/cert-manager.yaml`) or from an authority made for it (``deploy.render --certificates``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from deploy.certificates import Authority
from events.permissions import configuration, leaf_account_name, password_variable, users
from events.server import MAX_PAYLOAD_BYTES

NAMESPACE = "muster-system"
DOMAIN = f"nats.{NAMESPACE}.svc"
CERTIFICATE_NAMES = (f"*.{DOMAIN}", DOMAIN, "localhost", "127.0.0.1")
"""The last two are for `kubectl port-forward`."""
CERTIFICATE_SECRET = "nats-tls"
CERTIFICATE_DAYS = 365
LEAF_PORT = 7422
FEDERATION_SECRET, FEDERATION_VARIABLE = "nats-federation", "MUSTER_FEDERATION_URL"
"""Of a cluster whose log a federation reads: where the federation's servers take leaf nodes, with user and password."""


FEDERATION_CA = "/etc/nats-federation/ca.crt"
FEDERATION_MOUNT = "\n            - {name: federation, mountPath: /etc/nats-federation, readOnly: true}"
FEDERATION_VOLUME = (
    f"\n        - name: federation\n          secret: {{secretName: {FEDERATION_SECRET}, "
    "items: [{key: ca.crt, path: ca.crt}]}"
)


class Leaves(NamedTuple):
    """What these servers have to do with leaf nodes."""

    clusters: Sequence[str] = ()
    """Those that may connect: the federation, which is here, reads their logs."""
    joins: bool = False
    """Whether a federation elsewhere reads this cluster's log."""


NO_LEAVES = Leaves()


def url(servers: int) -> str:
    """All servers, for clients."""
    return ",".join(f"nats://{host}:4222" for host in _hosts(servers))


def replicas(servers: int) -> int:
    """Of every stream: three, where there are as many servers. A fourth and fifth server carry streams of others."""
    return 3 if servers >= 3 else 1


def manifest(
    cluster: str, image: str, servers: int, shards: Sequence[str], security: str, leaves: Leaves = NO_LEAVES
) -> str:
    """Configuration, Service, StatefulSet and disruption budget. `security` is the container's securityContext."""
    text = server_configuration(cluster, servers, shards, leaves)
    passwords = [_password(user) for user in users(shards, leaves.clusters)]
    if leaves.joins:
        source = f"{{secretKeyRef: {{name: {FEDERATION_SECRET}, key: url}}}}"
        passwords.append(f"            - {{name: {FEDERATION_VARIABLE}, valueFrom: {source}}}")
    return MANIFEST.format(
        namespace=NAMESPACE,
        image=image,
        servers=servers,
        configuration=textwrap.indent(text, "    ").rstrip(),
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        certificate=CERTIFICATE_SECRET,
        passwords="\n".join(passwords),
        security=security,
        leaf_service=f"\n    - {{name: leaves, port: {LEAF_PORT}}}" if leaves.clusters else "",
        federation_mount=FEDERATION_MOUNT if leaves.joins else "",
        federation_volume=FEDERATION_VOLUME if leaves.joins else "",
        leaf_port=f"\n            - {{name: leaves, containerPort: {LEAF_PORT}}}" if leaves.clusters else "",
    )


def server_configuration(cluster: str, servers: int, shards: Sequence[str] = (), leaves: Leaves = NO_LEAVES) -> str:
    """nats-server's file, the same for all of them: their own name and the passwords come from their environment."""
    files = "ca_file: /etc/nats-tls/ca.crt, cert_file: /etc/nats-tls/tls.crt, key_file: /etc/nats-tls/tls.key"
    routes = ", ".join(f'"nats://{host}:6222"' for host in _hosts(servers))
    together = (
        f"cluster {{\n  name: muster-{cluster}, listen: 0.0.0.0:6222, no_advertise: true\n  routes: [{routes}]\n"
        f"  tls {{ {files}, verify_cert_and_check_known_urls: true }}\n}}\n"
    )
    return (
        "server_name: $POD_NAME\n"
        f"port: 4222\nhttp_port: 8222\nmax_payload: {MAX_PAYLOAD_BYTES}\n"
        f"jetstream {{ store_dir: /data, max_file_store: 45GB, sync_interval: always, domain: muster-{cluster} }}\n"
        "feature_flags { js_ack_fc_v2: false }  # nats-py 2.16 reads only the first format\n"
        f"tls {{ {files} }}\n"
        + (together if servers > 1 else "")
        + _leaf_nodes(cluster, leaves, files)
        + configuration(cluster, shards=shards, leaves=leaves.clusters, is_leaf=leaves.joins)
    )


def _leaf_nodes(cluster: str, leaves: Leaves, files: str) -> str:
    """Where clusters may connect, and where this one does. Raises ValueError for one of this cluster's own name: servers
    take no leaf node from servers that are called like themselves."""
    if cluster in leaves.clusters:
        raise ValueError(f"leaf {cluster!r}: expected another name than that of the cluster here")
    listens = f"  listen: 0.0.0.0:{LEAF_PORT}, no_advertise: true, tls {{ {files} }}\n" if leaves.clusters else ""
    remote = f"url: ${FEDERATION_VARIABLE}, account: {leaf_account_name(cluster)}"
    joins = f"  remotes: [ {{ {remote}, tls {{ ca_file: {FEDERATION_CA} }} }} ]\n" if leaves.joins else ""
    return f"leafnodes {{\n{listens}{joins}}}\n" if listens or joins else ""


def secret_name(user: str) -> str:
    """Of the Secret that holds this user's password."""
    return f"nats-user-{user.lower().replace('_', '-')}"


def new_password() -> str:
    """A password that nats-server reads as text from its environment: one that begins with a digit or a dash may be taken
    for a number, and refused."""
    return f"m{secrets.token_hex(24)}"


def password_secrets(shards: Sequence[str] = (), leaves: Sequence[str] = ()) -> str:
    """A Secret with a new password for each user. JSON is YAML."""
    items = [_secret(secret_name(user), "Opaque", {"password": new_password()}) for user in users(shards, leaves)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n"


def certificate_secret() -> str:
    """A Secret with a certificate for the servers, of an authority whose key nobody keeps. JSON is YAML."""
    authority = Authority("muster nats")
    issued = authority.issue(CERTIFICATE_NAMES, days=CERTIFICATE_DAYS)
    data = {"ca.crt": authority.certificate, "tls.crt": issued.certificate, "tls.key": issued.key}
    return json.dumps(_secret(CERTIFICATE_SECRET, "kubernetes.io/tls", data), indent=1) + "\n"


def _hosts(servers: int) -> list[str]:
    return [f"nats-{number}.{DOMAIN}" for number in range(servers)]


def _secret(name: str, kind: str, data: dict[str, str]) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": kind,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def _password(user: str) -> str:
    source = f"{{secretKeyRef: {{name: {secret_name(user)}, key: password}}}}"
    return f"            - {{name: {password_variable(user)}, valueFrom: {source}}}"


MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {{name: nats, namespace: {namespace}}}
data:
  nats-server.conf: |
{configuration}
---
apiVersion: v1
kind: Service
metadata: {{name: nats, namespace: {namespace}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true  # they must find each other before they can be ready
  selector: {{app.kubernetes.io/name: nats}}
  ports:
    - {{name: nats, port: 4222}}
    - {{name: routes, port: 6222}}{leaf_service}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: nats, namespace: {namespace}}}
spec:
  maxUnavailable: 1
  selector: {{matchLabels: {{app.kubernetes.io/name: nats}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: nats, namespace: {namespace}, labels: {{app.kubernetes.io/name: nats}}}}
spec:
  serviceName: nats
  replicas: {servers}
  podManagementPolicy: Parallel  # the first start needs most of them; an update goes one by one all the same
  selector: {{matchLabels: {{app.kubernetes.io/name: nats}}}}
  template:
    metadata:
      labels: {{app.kubernetes.io/name: nats, app.kubernetes.io/part-of: muster}}
      annotations: {{muster.dev/configuration: "{digest}"}}
    spec:
      serviceAccountName: nats
      automountServiceAccountToken: false
      priorityClassName: system-cluster-critical
      terminationGracePeriodSeconds: 60
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {{matchLabels: {{app.kubernetes.io/name: nats}}}}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {{matchLabels: {{app.kubernetes.io/name: nats}}}}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: nats
          image: {image}
          command: [nats-server, --config, /etc/nats/nats-server.conf]
          env:
            - {{name: POD_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
            - {{name: GOMEMLIMIT, value: 1800MiB}}
{passwords}
          ports:
            - {{name: nats, containerPort: 4222}}
            - {{name: routes, containerPort: 6222}}{leaf_port}
            - {{name: monitor, containerPort: 8222}}
          startupProbe:  # all streams recovered and caught up: the next one may go down
            httpGet: {{path: /healthz, port: monitor}}
            periodSeconds: 2
            failureThreshold: 300
          readinessProbe:
            httpGet: {{path: "/healthz?js-server-only=true", port: monitor}}
          livenessProbe:  # says nothing of the others: who is left alone is not helped by a restart
            httpGet: {{path: "/healthz?js-enabled-only=true", port: monitor}}
            periodSeconds: 30
          resources:
            requests: {{cpu: 200m, memory: 256Mi}}
            limits: {{cpu: "2", memory: 2Gi}}
{security}
          volumeMounts:
            - {{name: data, mountPath: /data}}
            - {{name: configuration, mountPath: /etc/nats, readOnly: true}}
            - {{name: certificate, mountPath: /etc/nats-tls, readOnly: true}}{federation_mount}
      volumes:
        - name: configuration
          configMap: {{name: nats}}
        - name: certificate
          secret: {{secretName: {certificate}}}{federation_volume}
  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {{requests: {{storage: 50Gi}}}}
"""
