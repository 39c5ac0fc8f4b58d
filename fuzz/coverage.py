"""Measures which lines of its readers the corpus of each fuzz target reaches.

For each target the readers are named below: the files, or functions, that decode or check what the target hands in. `make fuzz-coverage`
runs every input of the corpus and of the seeds once, in a build that counts, and prints the share of lines that ran. Tests
inside those files are no part of the build, and so do not count.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CRATES = HERE.parent / "crates"
LEAST = 90

# A file as a whole, or those of its functions that read what others wrote or check it: the rest of it writes, or goes on with
# what was read. What takes memory that came along as a descriptor is left out, for an input is bytes.
WHOLE = None
READERS: dict[str, dict[str, list[str] | None]] = {
    "manifest": {
        "graphmill-graph/src/manifest/mod.rs": ["parse"],
        "graphmill-graph/src/manifest/validate.rs": WHOLE,
        "graphmill-graph/src/checksum.rs": ["checksum", "deserialize", "parse"],
    },
    "arrays": {"graphmill-graph/src/verify.rs": WHOLE},
    "frames": {
        "graphmill-wire/src/batch.rs": WHOLE,
        "graphmill-wire/src/exchange.rs": ["need", "read_answer", "read_more", "rows", "room_for", "words", "lengths"],
        "graphmill-wire/src/header.rs": WHOLE,
        "graphmill-wire/src/message.rs": WHOLE,
        "graphmill-wire/src/read.rs": WHOLE,
        "graphmill-wire/src/version.rs": WHOLE,
    },
    "connection": {
        "graphmill-net/src/frames/reader.rs": [
            "next", "is_next_here", "read_body", "read_body_watched", "read_whole_body", "fill", "skip_body",
            "read_ahead", "shrink", "note", "read",
        ],
        "graphmill-wire/src/header.rs": WHOLE,
        "graphmill-wire/src/message.rs": WHOLE,
    },
    "objects": {
        "graphmill-objects/src/key.rs": ["from_str", "location", "is_plain", "unescaped", "bad"],
        "graphmill-objects/src/server/connection.rs": [
            "greet", "check", "step", "next_request", "put", "receive", "read_body", "reserve", "fits", "has", "list",
            "stop", "is_current", "id", "wait", "patience",
        ],
    },
    "rendezvous": {
        "graphmill-rendezvous/src/records.rs": ["read", "in_round", "parse"],
        "graphmill-rendezvous/src/keeper/file.rs": ["replay"],
        "graphmill-rendezvous/src/settings.rs": ["check"],
    },
    "control": {
        "graphmill-server/src/dataset/books.rs": WHOLE,
        "graphmill-server/src/dataset/check.rs": WHOLE,
        "graphmill-server/src/dataset/edges.rs": WHOLE,
        "graphmill-server/src/dataset/ids.rs": WHOLE,
        "graphmill-server/src/dataset/mod.rs": WHOLE,
        "graphmill-server/src/dataset/originals.rs": WHOLE,
        "graphmill-server/src/dataset/rows.rs": WHOLE,
        "graphmill-server/src/seeds.rs": WHOLE,
    },
    "coordinator": {
        "graphmill-rendezvous/src/service.rs": WHOLE,
        "graphmill-rendezvous/src/settings.rs": ["check", "check_run"],
        "graphmill-rendezvous/src/values.rs": [
            "set", "set_all", "bytes_with", "get", "has_all", "add", "compare_set", "delete", "append", "count",
        ],
        "graphmill-rendezvous/src/storage/wire.rs": WHOLE,
        "graphmill-rendezvous/src/storage/registry.rs": ["checked", "difference", "register", "renew", "remove"],
    },
    "texts": {
        "graphmill-objects/src/key.rs": ["from_str", "location", "is_plain", "unescaped", "bad"],
        "graphmill-net/src/address.rs": ["from_str"],
        "graphmill-rendezvous/src/target.rs": ["from_str"],
        "graphmill-rendezvous/src/etcd/url.rs": WHOLE,
        "graphmill-rendezvous/src/settings.rs": ["check_run"],
    },
}  # fmt: skip
FUNCTION = re.compile(r"\s*(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn (\w+)")


def of_functions(path: Path, functions: list[str] | None) -> Callable[[int], bool]:
    """Whether a line belongs to one of a file's functions: from its first line to that of the next."""
    if functions is WHOLE:
        return lambda _: True
    inside, within = False, [False]
    for line in path.read_text().splitlines():
        if found := FUNCTION.match(line):
            inside = found[1] in functions
        within.append(inside)
    missing = set(functions) - {found[1] for line in path.read_text().splitlines() if (found := FUNCTION.match(line))}
    if missing:
        sys.exit(f"{path} has no {', '.join(sorted(missing))} any more")
    return lambda number: within[number]


@functools.cache
def tool(name: str) -> str:
    """A tool of the compiler's LLVM: beside it, or a package of the same version, which alone reads what it wrote."""
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    beside = sorted(Path(sysroot).glob(f"lib/rustlib/*/bin/{name}"))
    about = subprocess.check_output(["rustc", "-vV"], text=True)
    version = about.partition("LLVM version: ")[2].partition(".")[0]
    found = str(beside[0]) if beside else shutil.which(f"{name}-{version}")
    if not found:
        sys.exit(f"there is no {name}: `rustup component add llvm-tools`, or `apt-get install llvm-{version}`")
    return found


def measure(target: str, binary: Path, inputs: list[str]) -> dict[str, dict[int, bool]]:
    """The readers of a target, each with its lines that have code, and whether they ran."""
    folder = HERE / "coverage" / target
    folder.mkdir(parents=True, exist_ok=True)
    raw, merged = folder / "run.profraw", folder / "run.profdata"
    # Every input once. The first folder is where a target puts those that it begins with.
    command = [str(binary), *inputs, "-runs=0"]
    with (folder / "run.log").open("w") as log:
        subprocess.run(
            command, cwd=HERE, env={**os.environ, "LLVM_PROFILE_FILE": str(raw)}, stdout=log, stderr=log, check=True
        )
    subprocess.run([tool("llvm-profdata"), "merge", "-sparse", str(raw), "-o", str(merged)], check=True)
    readers = READERS[target]
    files = [str(CRATES / reader) for reader in readers]
    export = [tool("llvm-cov"), "export", "-format=lcov", str(binary), f"-instr-profile={merged}", *files]
    found: dict[str, dict[int, bool]] = {}
    for line in subprocess.check_output(export, text=True).splitlines():
        kind, _, value = line.partition(":")
        if kind == "SF":
            name = str(Path(value).relative_to(CRATES))
            lines, counts = found.setdefault(name, {}), of_functions(CRATES / name, readers[name])
        elif kind == "DA":
            number, count = value.split(",")[:2]
            if counts(int(number)):
                lines[int(number)] = int(count) > 0
    missed = {name: [number for number, ran in lines.items() if not ran] for name, lines in found.items()}
    (folder / "missed.txt").write_text("".join(f"{name}: {numbers}\n" for name, numbers in missed.items() if numbers))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=Path, help="the folder of the binaries that count")
    parser.add_argument("targets", nargs="+", metavar="'TARGET=FOLDER ...'", help="a target, and where its inputs are")
    arguments = parser.parse_args()
    low = []
    print(f"{'':<52} {'lines':>6} {'ran':>6} {'share':>8}")
    for named in arguments.targets:
        target, _, inputs = named.partition("=")
        files = measure(target, arguments.build.resolve() / target, inputs.split())
        rows = [(f"  {name}", len(lines), sum(lines.values())) for name, lines in sorted(files.items())]
        total = (target, sum(row[1] for row in rows), sum(row[2] for row in rows))
        for name, lines, ran in [total, *rows]:
            print(f"{name:<52} {lines:>6} {ran:>6} {100 * ran / max(lines, 1):>7.1f}%")
        if 100 * total[2] < LEAST * total[1]:
            low.append(target)
    if low:
        print(f"below {LEAST} %: {', '.join(low)}; the lines are in fuzz/coverage/NAME/missed.txt")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
