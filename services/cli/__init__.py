"""The groups of commands of the command line, and the options that commands share."""
