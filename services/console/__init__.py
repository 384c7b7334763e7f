"""What the command line does: `commands` and `jobs` have its commands, from arguments to an exit code.

`launch` runs a service as a process, by its role (`roles`). `kinds` tells a cluster's log from a federation's, for what
goes through either: `replay`, `verify`, `retention`. `simulate` plays the cores over a log in memory, `demo` starts
everything on this machine. `show` prints.
"""
