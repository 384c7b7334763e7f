"""What the log means: the only fold, and the one place that says what fits where.

`State` is the fold of a cluster's log up to a place. Commits alone change it: services feed them to `State.apply_stored`,
cores read the state and answer with events.

`records` are the nouns (pod, gang, group, claim, cohort, clock), `fold` the table of transitions, `nodes` the table of
room that the arithmetic runs on, `fits` the one answer to 'does this go there', `open_ports` the host ports that were
opened since, `validate` what must always hold, `snapshot` the state as bytes and its digest.

Where to read on: `fold.APPLY`, a row for every event, and from it any transition (`pods.observed`, say); then
`services.planner.core`, which reads a state and answers with events.
"""

from services.state.fold import State

__all__ = ["State"]
