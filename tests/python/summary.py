"""Reads the logs of the Rust and the Python tests and prints one line with what really ran."""

import re
import sys
from pathlib import Path


def count(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text))


def main(rust_log: str, python_log: str) -> int:
    rust = Path(rust_log).read_text(errors="replace")
    results = "\n".join(re.findall(r"^test result: .*$", rust, re.MULTILINE))
    python = re.findall(r"^(?=.*\bin [\d.]+s).*$", Path(python_log).read_text(errors="replace"), re.MULTILINE)
    verdict = python[-1] if python else ""

    passed = (count(r"(\d+) passed", results), count(r"(\d+) passed", verdict))
    failed = count(r"(\d+) failed", results) + count(r"(\d+) (?:failed|errors?)\b", verdict)
    skipped = count(r"(\d+) ignored", results) + count(r"(\d+) skipped", verdict)
    ran = all(passed)
    print(
        f"tests: {sum(passed)} passed ({passed[0]} Rust, {passed[1]} Python), {failed} failed, {skipped} skipped"
        + ("" if ran else "; a suite did not run")
    )
    return 0 if ran and not failed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
