"""The entry point: the ``muster`` command, and ``python -m services``. `services.cli.muster` has its commands.

Until a command begins, Ctrl-C ends the process as it ends others: Python's own way is a traceback of whatever was being
imported. A process started with it ignored goes on ignoring it.

numpy's OpenBLAS starts a thread for each core when it is imported: a third of a service's start, and 64 threads on a
large node. Nothing here multiplies matrices, so one is the default.
"""

import os
import signal
import sys


def main() -> None:
    """The entry point of the ``muster`` command."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from services.cli.muster import asked_for
    from services.console.printed import ending

    raise SystemExit(ending(asked_for(sys.argv[1:])))


if __name__ == "__main__":
    main()
