"""More planted bugs: what is read from the cluster and when, edits at a bad moment, nodes that change, host ports,
bounds that are met at once, what cannot be read for a while."""

from __future__ import annotations

from tests.simulation import koordinator, rollouts, upstream
from tests.simulation.planting import (
    BEYOND_FROM,
    DENSE_FROM,
    FURTHER_FROM,
    LATEST_FROM,
    NEWEST_FROM,
    SET_BACK_FROM,
    WIDER_FROM,
    Plant,
)

MORE: dict[str, Plant] = {
    "eviction given up in doubt": Plant(
        "a refusal settles an eviction although an older attempt may still land",
        "services.binder.service.effects",
        (
            (
                "            return error.retry_after_s or 0.0\n        return ev.PodEvicted(",
                "            return 0.0 if error.retryable else ev.EvictionFailed(**about, message=str(error))\n"
                "        return ev.PodEvicted(",
            ),
        ),
    ),
    "fence without an answer": Plant(
        "a write that nobody acknowledged counts as the one that makes older attempts fail",
        "services.binder.service.effects",
        (
            (
                "        except ApiError:\n            return None\n        if version ==",
                "        except ApiError:\n            return refused\n        if version ==",
            ),
        ),
    ),
    "label taken at once": Plant(
        "a pod whose label was edited leaves its gang while a proposal or a hold of it stands",
        "services.state.groups",
        (("        if held is not None and held.stage != BOUND_CLAIM:\n", "        if False:\n"),),
    ),
    "label forgotten": Plant(
        "an edit of a pod's label that came while it was proposed or held never counts",
        "services.state.groups",
        (("    if pod.gang != (fact.gang.gang if", "    if False and (fact.gang.gang if"),),
    ),
    "clock of the owner before": Plant(
        "groups that wait for their backoff stay on the clock of the shard that lost them",
        "services.state.shards",
        (("                groups.make_ready(state, state.groups[key])\n", "                pass\n"),),
    ),
    "snapshot of another digest": Plant(
        "a snapshot counts though its content has not the digest under which it is kept",
        "services.state.form",
        (("        if found.hexdigest() != digest:", "        if False:"),),
    ),
    "snapshot that the log denies": Plant(
        "a snapshot counts though the log names another digest for it",
        "services.start",
        (("    if taken is not None and taken.digest != base.digest:", "    if False:"),),
    ),
    "snapshot of another version": Plant(
        "a snapshot counts though this code lacks the fold that made it",
        "services.start",
        (("    if kept.state not in form.folds:", "    if False:"),),
        (("services.state.form", "        if version not in self.folds:", "        if False:"),),
    ),
    "named gang not waited for": Plant(
        "a gang starts although one that it names, and that does not name it, lacks pods",
        "services.state.membership",
        (
            (
                '    return next((key for key in outside(state, group) if not reached(state, key)), "")',
                '    return ""',
            ),
        ),
    ),
    "no look-ahead": Plant(
        "a shard takes room for which groups of a higher priority wait that are other shards'",
        "services.planner.sharing",
        (("    if queue and any(owner != shard for owner in owners):", "    if False:"),),
    ),
    "gated pod proposed": Plant(
        "a pod that is gated is proposed",
        "services.state.membership",
        (
            (" and pod.status == PENDING and not pod.fact.gated", " and pod.status == PENDING"),
            ("            elif not (fact := pod.fact).gated:\n", "            elif fact := pod.fact:\n"),
        ),
    ),
    "nominated room not subtracted": Plant(
        "one of the shards proposes room that is nominated for others",
        "services.planner.core",
        (
            (
                "        self.placed: list[GangPlaced] = []\n",
                "        self.placed: list[GangPlaced] = []\n"
                "        for claim in state.claims.values() if shard == 'b' else ():\n"
                "            if claim.stage == 'nominated' and claim.node in state.table.rows:\n"
                "                of = state.table.classes[claim.scheduling_class]\n"
                "                self.room._count(of, np.array([state.table.rows[claim.node]]), np.array([-1]))\n",
            ),
            ("from msgspec.structs import replace\n", "import numpy as np\nfrom msgspec.structs import replace\n"),
        ),
    ),
    "room of the finished": Plant(
        "a pod that is over keeps its room",
        "services.state.pods",
        (
            (
                "    held = release(state, event.uid)\n    if held is not None and pod.status == FAILED:",
                "    held = state.claims.get(event.uid)\n    if held is not None and pod.status == FAILED:",
            ),
        ),
    ),
    "room of those that go": Plant(
        "a pod that is being deleted gives its room back at once, though it still runs",
        "services.state.pods",
        (
            (
                "    pod.observed = TERMINATING\n",
                "    pod.observed = TERMINATING\n    if pod.node:\n        release(state, event.uid)\n",
            ),
        ),
    ),
    "bound under another UID": Plant(
        "that a pod of the name is bound counts for the one that was there before",
        "services.binder.binding",
        (("    if seen is None or seen.uid != intent.uid:\n", "    if seen is None:\n"),),
    ),
    "made anew in a gap": Plant(
        "a pod that went while nobody watched stays where another has its name",
        "services.ingest.books.pods",
        (("            events += self.gone(holder, key)\n", "            pass\n"),),
    ),
    "ports not judged": Plant(
        "the binder permits a pod though somebody else has its host port",
        "services.binder.bench",
        (("        if not taken:\n", "        if True:\n"),),
    ),
    "ports not planned": Plant(
        "a planner proposes a node though somebody else has the host port there",
        "services.planner.placement",
        (("        ports = self.ports_free(info)\n        return", "        ports = None\n        return"),),
    ),
    "preferred is required": Plant(
        "a preferred affinity keeps a pod from all other nodes",
        "services.ingest.normalise",
        (
            (
                "required_affinity=None if required is None else tuple(map(_term, required.node_selector_terms or ())),",
                "required_affinity=tuple(_term(one.preference) for one in preferred)"
                " or (None if required is None else tuple(map(_term, required.node_selector_terms or ()))),",
            ),
        ),
    ),
    "masks kept": Plant(
        "which nodes a class may go to is not looked at anew when a node changed",
        "services.state.masks",
        (("            mask.values[rows] = yield from evaluate(table, info, rows)\n", ""),),
    ),
    "labels kept": Plant(
        "a node's labels are those that it had when somebody first asked",
        "services.state.nodes",
        (
            (
                "            column[row] = self._label_code(codes, fact, key)\n            if len(codes)",
                "            column[row] = column[row] or self._label_code(codes, fact, key)\n            if len(codes)",
            ),
        ),
    ),
    "node's change missed": Plant(
        "ingest writes a node again only when it offers something else",
        "services.ingest.books.named",
        (
            (
                "        if old is None or not identity.same(old, new):\n            events += self._folded(new)",
                "        unchanged = self.kind == 'Node' and old is not None and old.allocatable == new.allocatable\n"
                "        if old is None or not (unchanged or identity.same(old, new)):\n"
                "            events += self._folded(new)",
            ),
        ),
    ),
    "resize forgotten": Plant(
        "a pod that was resized holds what it asked for first",
        "services.ingest.books.pods",
        (
            (
                "        if not identity.same(old, msgspec.structs.replace(new, status=old.status, node=old.node)):",
                "        as_before = {'status': old.status, 'node': old.node, 'scheduling_class': old.scheduling_class}\n"
                "        if not identity.same(old, msgspec.structs.replace(new, **as_before)):",
            ),
        ),
    ),
    "minimum of the proposal": Plant(
        "a PodGroup that changes while a proposal of its gang is under way never counts",
        "services.state.groups",
        (
            (
                "    before = named_by(gang)\n    declarations.declare(state, gang)\n    _declared(state, gang, before)\n"
                "    group = state.groups.get(gang.group)\n",
                "    group = state.groups.get(gang.group)\n    if group is not None and group.phase == AWAITING:\n"
                "        return\n"
                "    before = named_by(gang)\n    declarations.declare(state, gang)\n"
                "    _declared(state, gang, before)\n",
            ),
        ),
    ),
    "minimum of the held": Plant(
        "what a pod says of its gang while it is held or proposed never counts",
        "services.state.groups",
        (
            (
                "        if fact.gang is not None:\n            before = named_by(gang)\n",
                "        if fact.gang is not None and uid not in state.claims:\n            before = named_by(gang)\n",
            ),
        ),
        first=koordinator.FROM,
    ),
    "youngest is heard": Plant(
        "of several pods that declare a gang the last is heard, not the first",
        "services.state.declarations",
        (("    if declares and not before:\n", "    if declares:\n"),),
    ),
    "minimum of the Workload before": Plant(
        "a Workload that changes is not read for the pods that are there",
        "services.ingest.books.workloads",
        (
            ('        self._ledger.changed(Reference(WORKLOAD.name, "/".join(key)))\n', ""),
            ("        self._ledger.changed(Reference(WORKLOAD.name, name))\n", ""),
        ),
        first=upstream.FROM,
    ),
    "priority class kept": Plant(
        "a PodGroup keeps the priority that its class had when it came",
        "services.ingest.books.named",
        (("            self._ledger.changed(Reference(self.kind, key[1]))\n", "            pass\n"),),
        first=upstream.FROM,
    ),
    "first page": Plant(
        "of a list in pages the first is taken for the whole",
        "services.kubernetes.client",
        (("        while token:\n            following", "        while token and not body:\n            following"),),
        first=WIDER_FROM,
    ),
    "left out of its commit": Plant(
        "what finds no room in a commit is in none",
        "services.writer",
        (
            (
                "            if chosen and (size > self._max_bytes or count > self.max_events):\n",
                "            if chosen and (size > self._max_bytes or count > self.max_events):\n"
                "                self._encoded.popleft()\n",
            ),
        ),
        first=WIDER_FROM,
    ),
    "PodGroup not told": Plant(
        "a PodGroup's status does not follow the pods that end",
        "services.binder.service.write_behind",
        (("    ev.PodFinished: WriteBehind.note_pod,\n", ""),),
    ),
    "old word on a PodGroup": Plant(
        "a PodGroup's status that was refused for somebody else's write is left as it stands",
        "services.binder.service.pod_groups",
        (("            self.gangs.put(key)  # seen now, written in the next round: as a condition is\n", ""),),
        first=WIDER_FROM,
    ),
    "part of a timeout": Plant(
        "a gang whose timeout names some of its pods gives everything back with it, and the others never say so",
        "services.binder.rules.koordinator.unreserve",
        (
            (
                "    return [over, released] if len(pods) <= commits.PODS_NAMED else [over]\n",
                "    return [over, released]\n",
            ),
        ),
        first=WIDER_FROM,
    ),
    "unreadable node kept": Plant(
        "a node that cannot be read any more is what it was",
        "services.ingest.books.named",
        (
            (
                "                events += self.gone(old.uid, key)\n            return events",
                "                pass\n            return events",
            ),
        ),
        first=WIDER_FROM,
    ),
    "proposal of any size": Plant(
        "a planner proposes what no commit takes as a permit",
        "services.planner.limits",
        (("    return max(0, taken - commits.DECISION_BYTES)\n", "    return 0\n"),),
        first=WIDER_FROM,
    ),
    "kinds as they were": Plant(
        "what the API server served when it was asked counts, whatever is installed later",
        "services.kubernetes.group_status",
        (
            (
                "        if self._served is None or not self._served.has(resource):\n",
                "        if self._served is None:\n",
            ),
            (
                "        self._served = await self._client.discover()\n        elsewhere =",
                "        self._served = Served({})\n        elsewhere = False and",
            ),
            (" or not served.has(resource)\n", "\n"),
        ),
        first=WIDER_FROM,
    ),
    "kind gone unnoticed": Plant(
        "PodGroups of a kind that is served no more stay as they were",
        "services.ingest.service",
        (
            (
                "                    await self._vanished(versions)\n            await self._asked.wait()\n",
                "                    pass\n            await self._asked.wait()\n",
            ),
        ),
        (
            (
                "services.ingest.service",
                "        await self._vanished(versions)\n        return None",
                "        return None",
            ),
        ),
        first=WIDER_FROM,
    ),
    "refused and forgotten": Plant(
        "what users read is not written any more once it was refused, whoever gets the permission later",
        "services.binder.service.rounds",
        (("            elif write.lasting:\n", "            elif False:\n"),),
        first=WIDER_FROM,
    ),
    "names alone": Plant(
        "pods of the same name in two namespaces are taken for one",
        "services.ingest.books.pods",
        (
            (
                "        key = (metadata.namespace, metadata.name)\n        holder",
                '        key = ("default", metadata.name)\n        holder',
            ),
        ),
        first=WIDER_FROM,
    ),
    "kept for its class alone": Plant(
        "the binder gives a replacement that asks for something else nothing of what is kept for its gang",
        "services.binder.standing",
        (("        self.spent = [*self.spent, *others]\n        return bool(others)\n", "        return False\n"),),
        first=rollouts.FROM,
    ),
    "restored unnoticed": Plant(
        "what a list says of before a backup is taken for older than the log",
        "services.ingest.differ",
        (("self._set_back(book, seen, version) if listed or self._lives_again(seen, version) else []", "[]"),),
        first=NEWEST_FROM,
    ),
    "lives once": Plant(
        "a pod whose binding was undone, and of whose binding no fact has said, is taken for bound",
        "services.ingest.restored",
        (('(known.node or bound_to) not in ("", seen.spec.node_name)', "False"),),
        first=NEWEST_FROM,
    ),
    "any yes": Plant(
        "whatever answers 200 to a binding has bound the pod",
        "services.kubernetes.binding",
        (("    if answer.code == CREATED:\n", "    if answer.code < 300:\n"),),
        first=NEWEST_FROM,
    ),
    "sidecar forgotten": Plant(
        "a container that runs beside the others all the time counts only while the pod starts",
        "services.ingest.requests",
        (
            (
                "            _add(running, asked)\n            _add(sidecars, asked)\n",
                "            _add(sidecars, asked)\n",
            ),
        ),
        first=NEWEST_FROM,
    ),
    "candidate once": Plant(
        "a pod of a scheduler whose pods are looked for no longer stays what it was",
        "services.ingest.books.pods",
        (
            (
                "            found = self._difference(",
                "            left = seen.spec.scheduler_name not in self._normalise.scheduler_names\n"
                "            found = [] if old.candidate and left else self._difference(",
            ),
        ),
        first=LATEST_FROM,
    ),
    "turn never comes": Plant(
        "who waits for his turn at an API server whose share is small is not let in as others leave",
        "services.kubernetes.share",
        (("        self._on_their_way -= 1\n        self._let_in()\n\n", "        self._on_their_way -= 1\n\n"),),
        first=LATEST_FROM,
    ),
    "kept for what stays": Plant(
        "room is kept for a gang that starves as if other schedulers' pods and DaemonSets' would leave",
        "services.state.reservations",
        (("    return names_nodes or not pod.fact.candidate\n", "    return False\n"),),
    ),
    "kept where ports stay open": Plant(
        "room is kept for a gang that starves beside host ports that stay open",
        "services.planner.rules.starvation.node_choice",
        (("if with_ports else ()\n", "if False else ()\n"),),
        (
            (
                "services.binder.rules.starvation.reserving",
                "        if any(fits.classes_collide(",
                "        if False and any(fits.classes_collide(",
            ),
        ),
        first=LATEST_FROM,
    ),
    "kept whatever changes": Plant(
        "room is kept for a gang that starves on a node that shrank, or that a DaemonSet's pod came to",
        "services.state.reservations",
        (("            reservation.doubted[node] = None\n", "            pass\n"),),
        (("services.state.reservations", "            kept.doubted[name] = None\n", "            pass\n"),),
        first=DENSE_FROM,
    ),
    "one answer believed": Plant(
        "a kind that the API server names is gone, as one answer said that it is not there",
        "services.ingest.service",
        (
            (
                "            if any(served.tells(kind.resource) and",
                "            if False and any(served.tells(kind.resource) and",
            ),
        ),
        first=FURTHER_FROM,
    ),
    "refused by the storage": Plant(
        "what goes wrong between API server and etcd as a binding is written is taken for a refusal (rule 5)",
        "services.kubernetes.binding",
        (('        return BindResult("in_doubt", str(error))\n    return', "        pass\n    return"),),
        first=FURTHER_FROM,
    ),
    "fence of nothing": Plant(
        "a binding in doubt is given up behind a write that changed nothing (rule 5)",
        "services.binder.service.effects",
        (("        if version == intent.resource_version:\n", "        if False:\n"),),
        first=FURTHER_FROM,
    ),
    "called off in doubt": Plant(
        "an eviction that is not wanted any more is called off although an attempt may still land",
        "services.binder.service.effects",
        (("        if uid in self._doubtful_evictions:\n            return None\n", ""),),
        first=BEYOND_FROM,
    ),
    "less is for the next": Plant(
        "that the policy allows fewer reservations goes for the next request alone, not for those that stand",
        "services.binder.rules.starvation.ending",
        (("[: max(0, len(standing) - policy.reservations)]", "[:0]"),),
        first=BEYOND_FROM,
    ),
    "turned off for the next": Plant(
        "that the policy keeps no room goes for the next request alone, not for what is kept",
        "services.binder.rules.starvation.ending",
        (("    if not policy.reserve_after_refusals:\n", "    if False:\n"),),
        first=BEYOND_FROM,
    ),
    "set back unnoticed": Plant(
        "who has read or written what a log that was set back does not have any more goes on over it",
        "events.jetstream",
        (("        if message is not None and Known.read(", "        if False and Known.read("),),
        first=SET_BACK_FROM,
    ),
    "said before it is looked": Plant(
        "who is connected again appends before it is known that the log is the one that it was",
        "events.jetstream",
        (
            (
                "            await self._look_for_known()\n            self._found_behind",
                "            self._found_behind",
            ),
            ("        await self._look_for_known()\n        try:\n", "        try:\n"),
        ),
        first=SET_BACK_FROM,
    ),
}
