"""Turns what the rounds of loaders from Python measured into medians, ratios and a table."""

from statistics import median

import comparison
from serving_report import PEER, peer_name

SERVED = "graphmill, a server"
# How much a batch has whose handing over is timed, and what is asked of that.
HANDED_BYTES = 16e6
HAND_MS_ASKED = 1
OVERHEAD_US_ASKED = 200
HAND_KEYS = ("loop_us", "hand_us", "hand_us_90", "drop_us", "bytes_per_batch")
RATE_ROW = "{:<44} {:<34} {:>8} {:>8} {:>8} {:>7}  {}"
COST_ROW = "{:<44} {:>34} {:>26}  {}"


def served_name(language: str, read: bool) -> str:
    return f"{language}, {'read' if read else 'unread'}"


def summarise(size: dict, loaders: list[str], measured: list[dict], reasons: dict[str, str]) -> dict:
    """Rates by name and round, then what is held against what."""
    sides: dict[str, dict[int, float]] = {}
    for one in measured:
        if "seeds_per_s" in one:
            sides.setdefault(side_name(one), {})[one["round"]] = one["seeds_per_s"]
    works = []
    for read in (True, False):
        ours, theirs = served_name("Python", read), served_name("Rust", read)
        what = f"from a server, every byte {'read' if read else 'left unread'}"
        works.append(work(what, sides, ours, theirs, 0.9))
    works.append(work("from a server, every byte read", sides, served_name("Python", True), peer_name(True), 15))
    ours = best(sides, "graphmill")
    for loader in loaders:
        works.append(work("embedded, every loader at its best", sides, ours, best(sides, loader), 3, loader))
    hands = [one for one in measured if one["name"] == "hand"]
    return comparison.result(size, measured, reasons, {
        "ratios": works,
        "sides": {name: described(rates) for name, rates in sides.items()},
        "hand": hands and {
            **{key: median(one[key] for one in hands) for key in HAND_KEYS},
            "copied": any(one["copied"] for one in hands),
        },
    })  # fmt: skip


def side_name(one: dict) -> str:
    if one["name"] != "embedded":
        return one["name"]
    if one["peer"].startswith("graphmill"):
        return f"{one['peer']}: num_threads {one['workers']}"
    return f"{one['peer']}: {one['workers']} workers, {one['threads']} threads"


def best(sides: dict[str, dict[int, float]], loader: str) -> str | None:
    mine = [name for name in sides if name.startswith(f"{loader}:")]
    return max(mine, key=lambda name: median(sides[name].values()), default=None)


def described(rates: dict[int, float]) -> dict:
    found = rates.values()
    return {"seeds_per_s": median(found), "lowest": min(found), "highest": max(found)}


def work(what: str, sides: dict, ours: str | None, theirs: str | None, asked: float, missing: str = "") -> dict:
    """One side beside another; the ratio is the median over the rounds that both took part in."""
    mine, others = sides.get(ours, {}), sides.get(theirs, {})
    both = [mine[number] / others[number] for number in mine if number in others]
    return {
        "what": what,
        "ours": ours,
        "theirs": theirs or missing,
        "ours_seeds_per_s": mine and median(mine.values()),
        "theirs_seeds_per_s": others and median(others.values()),
        "ratios": both,
        "ratio": median(both) if both else None,
        "asked": asked,
    }


def table(result: dict) -> str:
    size, works = result["size"], result["works"]
    lines = [
        f"{result['machine']['cores']} cores, {result['machine']['processor']}; loaders from Python, with features",
        f"{size['nodes']:,} nodes, {size['edges']:,} edges (R-MAT), {size['feature_dim']} f32 features, batches of "
        f"{size['batch_size']:,}, fanouts {size['fanouts']}; {size['seconds']:g} s each, rounds: {size['rounds']}",
        "",
        RATE_ROW.format("k seeds/s", "ours, from Python, beside", "theirs", "ours", "ratio", "asked", "").rstrip(),
        *map(rate_row, works["ratios"]),
        "",
        *cost_rows(works["hand"]),
        "",
        "All sides, k seeds/s: median (lowest to highest)",
        *(side_row(name, found) for name, found in works["sides"].items()),
        "",
        "Versions: " + "; ".join(f"{name} {version}" for name, version in result["versions"].items()),
    ]
    lines += [f"{name} was not measured: {reason}" for name, reason in result["reasons"].items()]
    return "\n".join(lines)


def rate_row(work: dict) -> str:
    rates = [f"{rate / 1e3:.1f}" if rate else "-" for rate in (work["theirs_seeds_per_s"], work["ours_seeds_per_s"])]
    ratio = work["ratio"]
    verdict = "" if ratio is None else "reached" if ratio >= work["asked"] else "missed"
    shown = "-" if ratio is None else f"{ratio:.2f}x"
    return RATE_ROW.format(work["what"], work["theirs"], *rates, shown, f"{work['asked']}x", verdict).rstrip()


def cost_rows(hand: dict | None) -> list[str]:
    if not hand:
        return ["handing over was not measured"]
    overhead, milliseconds = hand["loop_us"], hand["hand_us"] / 1e3
    copied = "copied" if hand["copied"] else "none: all tensors lie in the shared memory"
    size = f"{hand['bytes_per_batch'] / 1e6:.1f} MB"
    rows = (
        ("CPU time of an empty loop, for a batch", f"{overhead:.0f} us", f"under {OVERHEAD_US_ASKED} us",
         overhead < OVERHEAD_US_ASKED),
        (f"a batch of {size} handed to torch", f"{milliseconds:.3f} ms", f"under {HAND_MS_ASKED} ms",
         milliseconds < HAND_MS_ASKED),
        ("copies of features, by pointer", copied, "none", not hand["copied"]),
    )  # fmt: skip
    verdicts = ("missed", "reached")
    return [COST_ROW.format(what, found, f"asked: {asked}", verdicts[met]) for what, found, asked, met in rows]


def side_row(name: str, found: dict) -> str:
    rate, lowest, highest = (found[key] / 1e3 for key in ("seeds_per_s", "lowest", "highest"))
    return f"  {name:<44} {rate:>8.1f} ({lowest:.1f} to {highest:.1f})"
