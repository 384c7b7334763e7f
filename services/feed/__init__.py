"""The feed: every event of a cluster's log as a CloudEvent, for outsiders. `core` is a pure function of a commit."""
