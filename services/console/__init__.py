"""What the command line does: `commands` and `jobs` have its commands, from arguments to an exit code.

`launch` runs a service as a process, by its role (`roles`), and `together` several of them. `location` says which log a
command means, `kinds` whether that is a cluster's or a federation's, for what goes through either: `replay`, `verify`,
`retention`. `policy` and `versions` are the admin's changes, which `admin` writes. `status` looks at a log that grows;
`summary` tells of a state who waits and why, with what `beyond` and `again` add, and `explain` tells the `story` of one
pod or gang. `simulate` plays the cores over a log in memory, and `remarks` says what manifests probably do not mean
(`misspelt`, `unread_gangs`, `unsimulated`); `demo` starts everything on this machine. `show` prints.
"""
