"""Runs a command and tells what it took: `python peak.py REPORT.json COMMAND...`.

A process inherits the peak resident memory of the one that starts it, so a large parent would hide the child's own: this
small one stands between them.
"""

import json
import os
import sys
import time


def main(report: str, *command: str) -> int:
    started = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    with open(report, "w") as file:
        json.dump({"seconds": seconds, "peak_bytes": usage.ru_maxrss * 1024}, file)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
