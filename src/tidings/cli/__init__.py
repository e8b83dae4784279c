"""The `tidings` command.

Rules: results go to standard output, everything else to standard error. With `--json` standard output is exactly one
JSON document; a command that fails then prints `{"error": {"kind", "message", "place"}}` there and the message for
people on standard error. Exit codes: 0 done, 1 failed, 2 bad input (a wrong option included), 130 interrupted.

Commands import what they need when they run, so `tidings --help` stays quick. A package that is missing then is
reported here, with the line that installs it. A broker is started without the command tree (`_serve`).
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its exit code."""
    try:
        from tidings.cli._serve import serve_at_once

        if not serve_at_once(sys.argv[1:]):
            from tidings.cli._app import app

            app(prog_name="tidings")
    except KeyboardInterrupt:  # before the first command had begun
        sys.exit(130)
    except ImportError as error:
        from tidings.cli._needs import as_missing_extra

        missing = as_missing_extra(error, sys.argv[1:])
        if missing is None:
            raise
        if "--json" in sys.argv:
            import json

            print(json.dumps({"error": {"kind": type(missing).__name__, "message": str(missing), "place": None}}))
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(missing.exit_code)
