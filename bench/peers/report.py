"""Turns what the rounds measured into medians, ratios and a table."""

from statistics import median

import comparison

OURS = "graphmill"
OURS_MAPPED = "graphmill, mmap"
# What is compared: with or without features, the rate, its unit and how many of it make one.
WORKS = ((False, "edges_per_s", "M edges/s", 1e6), (True, "seeds_per_s", "k seeds/s", 1e3))
ROW = "{:<33} {:<24} {:>12} {:>8} {:>8} {:>7}"


def summarise(size: dict, fanouts: list[str], peers: list[str], measured: list[dict], reasons: dict[str, str]) -> dict:
    works = []
    for features, rate, unit, scale in WORKS:
        for text in fanouts:
            mine = [told for told in measured if told["features"] == features and key(told["fanouts"]) == text]
            works.append({
                "work": f"{text}{' with features' if features else ''}, {unit}",
                "fanouts": text,
                "features": features,
                "theirs": {peer: medians(mine, peer, rate, scale) for peer in peers},
                "ours": {name: medians(mine, name, rate, scale) for name in (OURS, OURS_MAPPED)},
            })  # fmt: skip
    for work in works:
        ours = work["ours"][OURS]
        for side in (work["theirs"], work["ours"]):
            for found in filter(None, side.values()):
                found["ratio"] = ours and ours["rate"] / found["rate"]
        there = {peer: found["rate"] for peer, found in work["theirs"].items() if found}
        work["fastest"] = max(there, key=there.get) if there else None
    return comparison.result(size, measured, reasons, works)


def key(fanouts: list[int]) -> str:
    return ",".join(map(str, fanouts))


def medians(measured: list[dict], peer: str, rate: str, scale: float) -> dict | None:
    told = [told for told in measured if told["peer"] == peer]
    if not told:
        return None
    rates = [one[rate] / scale for one in told]
    return {
        "rate": median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "edges_per_batch": median(one["edges_per_batch"] for one in told),
        "nodes_per_batch": median(one["nodes_per_batch"] for one in told),
    }


def table(result: dict) -> str:
    size = result["size"]
    lines = [
        f"{result['machine']['cores']} cores, {result['machine']['processor']}; one thread each",
        f"{size['nodes']:,} nodes, {size['edges']:,} edges (R-MAT), {size['feature_dim']} f32 features, batches of "
        f"{size['batch_size']:,}; medians over {size['batches']} batches, then over the rounds ({size['rounds']})",
        "",
        ROW.format("fanouts, rate", "peer", "edges/batch", "theirs", "ours", "ratio"),
    ]
    for work in result["works"]:
        lines.append("")
        ours = work["ours"][OURS]
        for peer, found in work["theirs"].items():
            name = f"{peer} {result['versions'].get(peer, '')}".split(",")[0] + " *" * (peer == work["fastest"])
            lines.append(row(work["work"], name, found, ours, result["reasons"].get(peer)))
        for name, found in work["ours"].items():
            if found:
                lines.append(row(work["work"], name, found, ours, None))
    lines += [
        "",
        "* the fastest peer. Peers sample different numbers of edges for the same fanouts: DGL and GraphBolt expand a",
        "node again in every hop, GraphLearn draws with replacement. Edges/s allow for that, seeds/s do not.",
    ]
    lines += [f"{name} was not measured: {reason}" for name, reason in result["reasons"].items()]
    lines += busy(result["measured"])
    lines += against_the_fastest(result["works"])
    return "\n".join(lines)


def row(work: str, peer: str, theirs: dict | None, ours: dict | None, reason: str | None) -> str:
    if theirs is None:
        return f"{work:<33} {peer:<24} not measured: {reason or 'no result'}"
    edges, rate = f"{theirs['edges_per_batch']:,.0f}", f"{theirs['rate']:.2f}"
    if ours is None:
        return ROW.format(work, peer, edges, rate, "-", "-")
    return ROW.format(work, peer, edges, rate, f"{ours['rate']:.2f}", f"{theirs['ratio']:.2f}x")


def busy(measured: list[dict]) -> list[str]:
    """A warning when the workers did not have a core each to themselves, or took more than one."""
    used = [told["cores_used"] for told in measured if "cores_used" in told]
    if not used or 0.9 <= min(used) <= max(used) <= 1.1:
        return []
    return [f"careful: workers had between {min(used)} and {max(used)} of a core; an idle machine gives them 1"]


def against_the_fastest(works: list[dict]) -> list[str]:
    lines = []
    for work in works:
        ours, fastest = work["ours"][OURS], work["fastest"]
        if ours and fastest:
            lines.append(f"{work['work']}: {work['theirs'][fastest]['ratio']:.2f}x of {fastest}, the fastest peer")
    return [""] * bool(lines) + lines
