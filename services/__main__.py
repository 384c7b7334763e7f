"""The door: the ``muster`` command, and ``python -m services``. What it can do stands in `services.cli.muster`.

Until a command begins, Ctrl-C ends the process as it ends others: Python's own way is a traceback of whatever was being
imported. Who was started with it ignored goes on ignoring it.
"""

import signal


def main() -> None:
    """The entry point of the ``muster`` command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from services.cli.muster import app
    from services.console.printed import ending

    raise SystemExit(ending(app))


if __name__ == "__main__":
    main()
