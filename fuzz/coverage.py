"""Measures which lines of its readers the corpus of each fuzz target reaches.

For each target the readers are named below: the files that decode or check what the target hands in. `make fuzz-coverage`
runs every input of the corpus and of the seeds once, in a build that counts, and prints the share of lines that ran. Tests
inside those files are no part of the build, and so do not count.
"""

import argparse
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CRATES = HERE.parent / "crates"
LEAST = 90

READERS = {
    "manifest": ["graphmill-graph/src/manifest", "graphmill-graph/src/checksum.rs"],
    "arrays": ["graphmill-graph/src/verify.rs", "graphmill-graph/src/lists.rs"],
    "frames": ["graphmill-wire/src"],
    "connection": ["graphmill-net/src/frames/reader.rs", "graphmill-wire/src/header.rs", "graphmill-wire/src/message.rs"],
    "objects": ["graphmill-objects/src/server/connection.rs", "graphmill-objects/src/key.rs"],
    "rendezvous": ["graphmill-rendezvous/src/records.rs", "graphmill-rendezvous/src/keeper/file.rs"],
    "control": [
        "graphmill-server/src/dataset",
        "graphmill-server/src/sampling.rs",
        "graphmill-server/src/seeds.rs",
    ],
    "coordinator": [
        "graphmill-rendezvous/src/service.rs",
        "graphmill-rendezvous/src/settings.rs",
        "graphmill-rendezvous/src/values.rs",
        "graphmill-rendezvous/src/storage/wire.rs",
        "graphmill-rendezvous/src/storage/registry.rs",
    ],
    "texts": [
        "graphmill-objects/src/key.rs",
        "graphmill-net/src/address.rs",
        "graphmill-rendezvous/src/target.rs",
        "graphmill-rendezvous/src/etcd/url.rs",
        "graphmill-sample/src/config.rs",
        "graphmill/src/commands/serve/settings.rs",
    ],
}


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
    files = [str(CRATES / reader) for reader in READERS[target]]
    export = [tool("llvm-cov"), "export", "-format=lcov", str(binary), f"-instr-profile={merged}", *files]
    found: dict[str, dict[int, bool]] = {}
    for line in subprocess.check_output(export, text=True).splitlines():
        kind, _, value = line.partition(":")
        if kind == "SF":
            lines = found.setdefault(str(Path(value).relative_to(CRATES)), {})
        elif kind == "DA":
            number, count = value.split(",")[:2]
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
