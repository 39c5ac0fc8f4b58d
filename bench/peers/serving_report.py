"""Turns what the rounds of serving measured into medians, ratios and a table."""

from dataclasses import dataclass
from statistics import median

import comparison

PEER = "GraphLearn"
ROW = "{:<20} {:<22} {:>10} {:>10} {:>8} {:>7}  {}"


@dataclass(frozen=True)
class Run:
    """One way to run us; `asked` is the ratio to GraphLearn that we want to reach, where we want one."""

    features: bool
    transport: str
    asked: float | None = None
    servers: int = 1
    mmap: bool = False

    @property
    def name(self) -> str:
        return f"ours, {with_or_without(self.features)}, {self.way}"

    @property
    def way(self) -> str:
        return self.transport + ", mmap" * self.mmap + ", 2 servers" * (self.servers == 2)


OUR_RUNS = (
    Run(True, "shm", asked=15),
    Run(True, "tcp", asked=5),
    # The peer holds all in memory; this shows what it costs to read from the page cache.
    Run(True, "shm", mmap=True),
    Run(False, "shm", asked=8),
    Run(False, "tcp", asked=8),
    Run(True, "shm", servers=2),
    Run(True, "tcp", servers=2),
    Run(False, "shm", servers=2),
    Run(False, "tcp", servers=2),
)


def with_or_without(features: bool) -> str:
    return "with features" if features else "without features"


def peer_name(features: bool) -> str:
    return f"{PEER}, {with_or_without(features)}"


def summarise(size: dict, measured: list[dict], reasons: dict[str, str]) -> dict:
    def of(name: str) -> dict | None:
        mine = [one for one in measured if one["name"] == name]
        return medians(mine) if mine else None

    works = []
    for run in OUR_RUNS:
        # One server is held against the peer, two against one.
        other = peer_name(run.features) if run.servers == 1 else Run(run.features, run.transport).name
        theirs, ours = of(other), of(run.name)
        ratio = theirs and ours and ours["seeds_per_s"] / theirs["seeds_per_s"]
        works.append({
            "features": run.features,
            "way": run.way,
            "servers": run.servers,
            "against": other,
            "theirs": theirs,
            "ours": ours,
            "ratio": ratio,
            "asked": run.asked,
        })  # fmt: skip
    return comparison.result(size, measured, reasons, works)


def medians(measured: list[dict]) -> dict:
    keys = ("seeds_per_s", "start_to_first_batch_s", "nodes_per_batch", "edges_per_batch", "bytes_per_batch")
    rates = [one["seeds_per_s"] for one in measured]
    return {key: median(one[key] for one in measured) for key in keys} | {"lowest": min(rates), "highest": max(rates)}


def table(result: dict) -> str:
    size, works = result["size"], result["works"]
    peer = f"{PEER} {result['versions'].get(PEER, '')}".rstrip()
    lines = [
        f"{result['machine']['cores']} cores, {result['machine']['processor']}; a server and a process that pulls",
        f"{size['nodes']:,} nodes, {size['edges']:,} edges (R-MAT), {size['feature_dim']} f32 features, batches of "
        f"{size['batch_size']:,}, fanouts {size['fanouts']}; {size['seconds']:g} s each, rounds: {size['rounds']}",
        "",
        ROW.format("k seeds/s", "ours over", PEER, "ours", "ratio", "asked", ""),
        *(rate_row(work) for work in works if work["servers"] == 1),
        "",
        ROW.format("k seeds/s", "ours over", "1 server", "2 servers", "ratio", "", ""),
        *(rate_row(work) for work in works if work["servers"] == 2),
        "",
        ROW.format("launch to batch, s", "ours over", PEER, "ours", "ratio", "", ""),
        *(start_row(work) for work in works if work["servers"] == 1),
        "",
        *sizes(works),
        f"{peer}, seeded, over its own RPC on TCP, the only way it has; it draws with replacement.",
    ]
    lines += [f"{name} was not measured: {reason}" for name, reason in result["reasons"].items()]
    return "\n".join(lines)


def rate_row(work: dict) -> str:
    theirs, ours = (side and f"{side['seeds_per_s'] / 1e3:.1f}" for side in (work["theirs"], work["ours"]))
    asked, verdict = "", ""
    if work["asked"]:
        asked = f"{work['asked']}x"
        verdict = "" if work["ratio"] is None else "reached" if work["ratio"] >= work["asked"] else "missed"
    return row(work, theirs, ours, work["ratio"] and f"{work['ratio']:.2f}x", asked, verdict)


def start_row(work: dict) -> str:
    sides = [side and side["start_to_first_batch_s"] for side in (work["theirs"], work["ours"])]
    ratio = f"{sides[0] / sides[1]:.1f}x" if all(sides) else None
    return row(work, *(side and f"{side:.2f}" for side in sides), ratio, "", "")


def row(work: dict, theirs: str | None, ours: str | None, ratio: str | None, asked: str, verdict: str) -> str:
    what = with_or_without(work["features"])
    return ROW.format(what, work["way"], theirs or "-", ours or "-", ratio or "-", asked, verdict).rstrip()


def sizes(works: list[dict]) -> list[str]:
    """How much each batch holds, so that a ratio of seeds is not taken for one of bytes."""
    lines = []
    for features in (True, False):
        work = next(work for work in works if work["features"] == features and work["servers"] == 1)
        for name, side in ((PEER, work["theirs"]), ("ours", work["ours"])):
            if side:
                held = f"{side['nodes_per_batch']:,.0f} nodes, {side['edges_per_batch']:,.0f} edges"
                size = f"{side['bytes_per_batch'] / 1e6:.2f} MB"
                lines.append(f"a batch {with_or_without(features)}, {name}: {held}, {size}")
    return lines
