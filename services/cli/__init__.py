"""The command line: `muster` has its commands, `policy`, `versions` and `jobs` those of its groups, `options` what
several of them take. What a command does stands in `services.console`.
"""
