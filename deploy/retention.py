"""The manifest of the job that archives a cluster's log every night and purges what is old: for who wants that.

It runs `muster retention` as the user `keeper`, who alone may purge. The archive is a file on a volume of its own. One
run at a time: two would write into the same archive. A run that fails does no harm, and the next takes up what it left.
"""

from __future__ import annotations

import json
from textwrap import indent

from deploy import nats
from events.permissions import KEEPER

DAYS = 30
"""That stay in the log."""


def manifest(cluster: str, image: str, servers: int, security: str) -> str:
    """Service account, volume and CronJob. `security` is the container's securityContext."""
    log = f"{nats.url(servers)}/{cluster}"
    return RETENTION.format(
        image=image,
        arguments=json.dumps(["retention", log, "--archive", f"/archive/{cluster}.db", "--days", str(DAYS)]),
        user=KEEPER,
        password=nats.secret_name(KEEPER),
        certificate=nats.CERTIFICATE_SECRET,
        security=indent(security, "    "),
    )


# Memory as docs/operations.md says it: 330 MB at 100,000 pods.
RETENTION = """\
# For who does not keep the log for ever (docs/operations.md, "Snapshots, archives, retention"). The volume grows by what
# is purged: make it as large as the archive may become.
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {user}, namespace: muster-system}}
automountServiceAccountToken: false
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: archive, namespace: muster-system}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 50Gi}}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: retention, namespace: muster-system, labels: {{app.kubernetes.io/name: retention}}}}
spec:
  schedule: "23 3 * * *"
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 3600
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 43200
      template:
        metadata:
          labels: {{app.kubernetes.io/name: retention, app.kubernetes.io/part-of: muster}}
        spec:
          serviceAccountName: {user}
          automountServiceAccountToken: false
          restartPolicy: Never
          securityContext:
            runAsNonRoot: true
            runAsUser: 65532
            runAsGroup: 65532
            fsGroup: 65532
            seccompProfile: {{type: RuntimeDefault}}
          containers:
            - name: retention
              image: {image}
              args: {arguments}
              env:
                - {{name: MUSTER_NATS_USER, value: {user}}}
                - {{name: MUSTER_NATS_PASSWORD, valueFrom: {{secretKeyRef: {{name: {password}, key: password}}}}}}
                - {{name: MUSTER_NATS_CA_FILE, value: /etc/nats-ca/ca.crt}}
              resources:
                requests: {{cpu: 200m, memory: 512Mi}}
                limits: {{cpu: "2", memory: 2Gi}}
{security}
              volumeMounts:
                - {{name: archive, mountPath: /archive}}
                - {{name: tmp, mountPath: /tmp}}
                - {{name: nats-ca, mountPath: /etc/nats-ca, readOnly: true}}
          volumes:
            - name: archive
              persistentVolumeClaim: {{claimName: archive}}
            - name: tmp
              emptyDir: {{sizeLimit: 1Gi}}
            - name: nats-ca
              secret: {{secretName: {certificate}, items: [{{key: ca.crt, path: ca.crt}}]}}
"""
