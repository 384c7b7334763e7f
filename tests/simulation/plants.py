"""Deliberate faults in copies of the rules: the simulator must find every one, or it finds too little."""

from __future__ import annotations

from tests.simulation import koordinator
from tests.simulation.federation.plants import PLANTS as FEDERATION
from tests.simulation.feed_plants import FEED
from tests.simulation.lease_plants import LEASES
from tests.simulation.more_plants import MORE
from tests.simulation.planting import Plant
from tests.simulation.upgrade_plants import UPGRADES

PLANTS: dict[str, Plant] = (
    {
        "quorum off by one": Plant(
            "the binder permits a gang that lacks one pod",
            "services.binder.rules.coscheduling.permit",
            (("assumed >= gang.declaration.min_member", "assumed >= gang.declaration.min_member - 1"),),
        ),
        "minimum off by one": Plant(
            "the planner thinks that a gang may start one pod short",
            "services.planner.roll",
            (("return self.minimum - self.have", "return self.minimum - self.have - 1"),),
        ),
        "permit before capacity": Plant(
            "the binder permits without looking for room",
            "services.binder.bench",
            (
                (
                    "        if node:\n            self._take(wanted, -1)",
                    "        if False:\n            self._take(wanted, -1)",
                ),
            ),
        ),
        "lost release": Plant(
            "a refused proposal keeps its room",
            "services.state.verdicts",
            (("    given_back = [claim.uid for claim in claims]\n", "    given_back = []\n"),),
        ),
        "room given back twice": Plant(
            "a released claim frees more than it held",
            "services.state.pods",
            (
                (
                    "table.claim(row, table.classes[held.scheduling_class], -1, held.stage == PROPOSED)\n"
                    "        state.room_sequence = state.sequence\n    return held",
                    "table.claim(row, table.classes[held.scheduling_class], -2, held.stage == PROPOSED)\n"
                    "        state.room_sequence = state.sequence\n    return held",
                ),
            ),
        ),
        "class forgotten too early": Plant(
            "a scheduling class goes with its last pod, although room is kept for another",
            "services.state.classes",
            ((".pods and digest not in state.kept_classes:", ".pods:"),),
        ),
        "class not said again": Plant(
            "ingest takes a scheduling class for known that the log forgot with its last pod",
            "services.ingest.books.pods",
            (("            del self._classes[pod.scheduling_class]", "            pass"),),
        ),
        "order of a set": Plant(
            "a refusal names its groups in the order of a set",
            "services.planner.core",
            (("groups=tuple(keys))", "groups=tuple(set(keys)))"),),
            compared=1,
        ),
        "clock read": Plant(
            "the tie between equal nodes is broken by the time of day",
            "services.planner.core",
            (
                ("    return zlib.crc32(group.key.encode())", "    return zlib.crc32(f'{time.time_ns()}'.encode())"),
                ("import zlib\n", "import time\nimport zlib\n"),
            ),
        ),
        "order of addresses": Plant(
            "the queue is in the order in which its groups lie in memory",
            "services.planner.core",
            (
                (
                    "    queue = yield from cycle_queue(state, state.policy, shard)\n",
                    "    queue = sorted((yield from cycle_queue(state, state.policy, shard)), key=id)\n",
                ),
            ),
        ),
        "retry without look-up": Plant(
            "a commit whose answer was lost is appended again behind whatever stands there",
            "events.jetstream",
            (
                ("        if last is not None and last.message_id == headers[MESSAGE_ID]:", "        if False:"),
                (
                    "            raise Conflict(subject, expected, found)",
                    "            headers = {**headers, EXPECTED: str(found), MESSAGE_ID: headers[MESSAGE_ID] + 'again'}",
                ),
            ),
        ),
        "no expected sequence": Plant(
            "an append does not say behind what",
            "events.jetstream",
            (("headers = {EXPECTED: str(expected), ", "headers = {"),),
        ),
        "replaced and going on": Plant(
            "a writer that meets a conflict goes on behind the other's last commit",
            "services.writer",
            (
                (
                    "                    raise SteppedDown(str(conflict)) from conflict",
                    "                    self.last = conflict.actual\n"
                    "                    self.last = await self.log.append(self.subject, header, payload, self.last)",
                ),
            ),
        ),
        "deciding before reading": Plant(
            "a writer decides before it has read its own last commit",
            "services.decider",
            (
                ("                if self.state.sequence >= self.writer.last:", "                if True:"),
                ("        if own is not None and own.sequence", "        if False and own.sequence"),
            ),
        ),
        "gap overlooked": Plant(
            "a reader takes what comes behind a gap",
            "events.consumer",
            (("            if sequence == self._next:", "            self._next = sequence\n            if True:"),),
        ),
        "intent given up in doubt": Plant(
            "a refusal settles an intent although an older attempt may still land",
            "services.binder.service.effects",
            (("            elif uid in self._doubtful and", "            elif False and"),),
        ),
        "outcome without effect": Plant(
            "a binding without an answer counts as bound",
            "services.binder.service.effects",
            (
                (
                    "                self._doubtful[uid] = intent.node\n            elif",
                    "                found = outcome(intent, 'bound', '', '')\n            elif",
                ),
            ),
        ),
        "failed without a look": Plant(
            "a failed precondition counts as a refusal, and the pod is not read",
            "services.binder.service.effects",
            (
                (
                    "settled_by(intent, await self._look(intent), result.message)\n            refused",
                    "outcome(intent, 'rejected', '', '')\n            refused",
                ),
            ),
        ),
        "effect without intent": Plant(
            "a pod is bound when it is proposed, before anybody permitted it",
            "services.binder.service.effects",
            (
                (
                    "            if isinstance(event, ev.GangPermitted):\n",
                    "            if isinstance(event, ev.GangPlaced):\n"
                    "                for assignment in event.required:\n"
                    "                    for uid in assignment.pods:\n"
                    "                        self._put(uid)\n"
                    "            if isinstance(event, ev.GangPermitted):\n",
                ),
                ("claim.stage != PERMITTED:", "claim.stage not in (PERMITTED, 'proposed'):"),
            ),
        ),
        "intents forgotten": Plant(
            "what was intended before a restart is not tried again",
            "services.binder.service",
            (("        yield from effects.resume()\n", ""),),
        ),
        "binding without preconditions": Plant(
            "a binding names neither UID nor resourceVersion",
            "services.kubernetes.binding",
            (('"namespace": namespace, "uid": uid, "resourceVersion": resource_version}', '"namespace": namespace}'),),
        ),
        "binding without resourceVersion": Plant(
            "a binding names the UID only",
            "services.kubernetes.binding",
            ((', "uid": uid, "resourceVersion": resource_version}', ', "uid": uid}'),),
        ),
        "eviction without UID": Plant(
            "an eviction takes whatever pod has the name",
            "services.kubernetes.client",
            (('            "deleteOptions": {"preconditions": {"uid": uid}},\n', ""),),
        ),
        "stale epoch accepted": Plant(
            "the fold takes what shards say of a partition that they lost",
            "services.state.groups",
            (
                (" or state.commit_epoch != state.epoch:\n        return None\n", ":\n        return None\n"),
                (
                    "    return group if state.owners[group.partition] == shard_of(state.writer) else None\n",
                    "    return group\n",
                ),
            ),
        ),
        "partitions of the dead": Plant(
            "a shard that is lost keeps its partitions",
            "services.binder.assignment",
            (
                (
                    "sorted(state.shards)",
                    'sorted(w.partition(".")[2] for w in state.holders if w.startswith("planner."))',
                ),
            ),
        ),
        "synced too early": Plant(
            "ingest says that it is synced before it has listed everything",
            "services.ingest.service",
            (("    async def run(self) -> None:\n", "    async def run(self) -> None:\n        self._synced()\n"),),
        ),
        "stale facts accepted": Plant(
            "an object that is older than the log's is observed all the same",
            "services.ingest.books.ledger",
            ((" or 0 <= version < self.versions.get(uid, 0))\n", ")\n"),),
            (("services.state.pods", "    return event.uid == known.uid and", "    return False and"),),
        ),
        "missed deletions": Plant(
            "what is gone while nobody watched stays in the log",
            "services.ingest.service",
            (("self.core.missing_in_slices(kind.name, listed)", "()"),),
        ),
        "watch not resumed": Plant(
            "after a 410 the watch goes on from now, and what came in between is missed",
            "services.ingest.service",
            (
                (
                    "                await self._list(kind, granted=True)\n                self._synced()\n",
                    "                async for page in self.client.pages(kind.resource):\n"
                    "                    self._versions[kind.name] = kind.page(page)[0]\n",
                ),
            ),
        ),
        "cohort never woken": Plant(
            "room that was given back wakes nobody",
            "services.state.cohorts",
            (("state.room_sequence > cohort.basis", "state.room_sequence < 0"),),
        ),
        "deadline on the wrong clock": Plant(
            "nominated room waits for a clock that nobody moves",
            "services.state.nominations",
            (('set_deadline(state.clock("binder"), NOMINATION', 'set_deadline(state.clock("ingest"), NOMINATION'),),
        ),
        "time of day for log time": Plant(
            "a service's log time is its wall clock, which jumps",
            "services.decider",
            (("        return time.monotonic_ns() + self._ahead_ns", "        return time.time_ns()"),),
        ),
        "jump moves deadlines": Plant(
            "a pause counts as time that passed",
            "services.state.clock",
            (("jumped_ns=step_ns if step_ns > JUMP_NS else 0", "jumped_ns=0"),),
        ),
        "unknown commit set aside": Plant(
            "a commit that this version cannot read is passed over",
            "services.state.fold",
            (
                (
                    '            raise UnknownCommit(f"{error} (',
                    "            self.sequence = stored.sequence\n            return None\n"
                    '            raise UnknownCommit(f"{error} (',
                ),
            ),
        ),
        "claim beside the pod": Plant(
            "a pod that somebody else bound keeps the room that was meant for it",
            "services.state.pods",
            (("    if held is not None and held.node == node:", "    if held is not None:"),),
        ),
        "nothing touched": Plant(
            "a release does not mark its node, so that planner and binder seem to disagree",
            "services.state.cluster",
            (("    node.touched = state.sequence\n    state.table.remove", "    state.table.remove"),),
        ),
        "role by role": Plant(
            "a gang of a gang group is permitted although another of the group lacks pods",
            "services.binder.rules.koordinator.gang_group",
            (
                (
                    "            return False\n    return not",
                    "            continue\n        return True\n    return not group.gangs and not",
                ),
            ),
        ),
        "tasks alike": Plant(
            "minimums of single tasks do not count: any pods of the gang may start it",
            "services.state.membership",
            (("    return minimums if sum(", "    return {} if sum("),),
        ),
        "another order after a snapshot": Plant(
            "a state that was restored has its groups in the order of their names",
            "services.state.form",
            (
                (
                    ".update(self._shared(attribute, value, known))\n",
                    ".update(sorted(self._shared(attribute, value, known).items()))\n",
                ),
            ),
        ),
        "purged to the newest": Plant(
            "the retention leaves one snapshot to start from, and that one may be damaged",
            "services.console.retention",
            (("    oldest = min(taken.", "    oldest = max(taken."),),
        ),
        "reservation for ever": Plant(
            "the room of a starving gang is kept although its time is over",
            "services.binder.rules.starvation.ending",
            (('    return "Expired" if reservation.due else ""', '    return ""'),),
        ),
        "nomination for ever": Plant(
            "the room of a failed member is kept although its time is over",
            "services.binder.replacement",
            (("        elif nomination.due and gang", "        elif False and gang"),),
        ),
        "any node": Plant(
            "the binder permits what its planner proposed, though the node takes no such pods any more",
            "services.binder.standing",
            (("            if filtered[row]:", "            if False:"),),
        ),
        "lowest first": Plant(
            "the queue has the lowest priority first",
            "services.state.queueing",
            (
                ("        return group.priority\n    declared", "        return -group.priority\n    declared"),
                ("    return max(own, default=group.priority)", "    return -max(own, default=group.priority)"),
            ),
        ),
        "partition of who is there": Plant(
            "a gang group's partition is that of the smallest gang that is there, not that is named",
            "services.state.gang_groups",
            (("    return partition_of(min(map(min, named), default=gangs[0]))", "    return partition_of(gangs[0])"),),
        ),
        "nomination begun anew": Plant(
            "room is nominated anew for a gang under another time, which nobody counts",
            "services.state.nominations",
            (("    since = state.place if before is None else before.since", "    since = state.place"),),
        ),
        "facts without news": Plant(
            "ingest writes a pod whenever its resourceVersion moved",
            "services.ingest.books.pods",
            (
                (
                    "        if not identity.same(old, msgspec.structs.replace(new, status=old.status, node=old.node)):",
                    "        if old.resource_version != new.resource_version and old.node == new.node:",
                ),
            ),
        ),
        "told once": Plant(
            "a pod's condition says for ever what it waited for first",
            "services.binder.report",
            (("(said == pod.reported and", "(pod.reported and"),),
        ),
        "part of the picture": Plant(
            "planners and binder decide while an ingest that took over has not listed everything",
            "services.state.cluster",
            (("    state.synced = False\n", "    pass\n"),),
        ),
        "time of the hold before": Plant(
            "that a hold's time is over counts for the gang's next hold as well",
            "services.state.groups",
            (("    group.permit_due = False\n    state.holding", "    state.holding"),),
            first=koordinator.FROM,
        ),
        "free from the start": Plant(
            "a gang's pods are as ordinary ones before it ever had its minimum",
            "services.state.membership",
            (("    return gang.started and match_policy(gang)", "    return match_policy(gang)"),),
            first=koordinator.FROM,
        ),
        "acted in vain": Plant(
            "that a user took the annotation off changes nothing for a gang that has timed out",
            "services.state.timeouts",
            (("        tallies.unsays_timed_out(state, gang, uid)\n", "        pass\n"),),
            first=koordinator.FROM,
        ),
        "waves of any size": Plant(
            "a gang that counts only those that wait counts those that run as well",
            "services.state.membership",
            (("    return census.waiting if match_policy(gang) == dialects.ONLY_WAITING else", "    return"),),
            (
                (
                    "services.binder.rules.koordinator.match_policy",
                    "    if gang.declaration is not None and membership.match_policy(gang) == ONLY_WAITING:",
                    "    if False:",
                ),
            ),
            first=koordinator.FROM,
        ),
    }
    | MORE
    | FEED
    | LEASES
    | UPGRADES
    | FEDERATION
)
