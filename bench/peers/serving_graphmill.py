"""Our Python loader beside a server: batches in shared memory.

    serving_graphmill.py pull ADDRESS DATASET ...    serving_graphmill.py hand ADDRESS DATASET ...

`pull` tells how fast batches come, and checks the first ones; with `--read` it reads every byte of each batch once.
`hand` tells what handing over a batch costs that is there already, and where its tensors lie. Both print a JSON line.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import dataset
import graphmill
import torch
import worker
from peer_graphmill import Graphmill

# Batches that are handed over one by one to be timed, what a batch is given to be there, and batches of an empty loop.
HANDED = 200
REST_SECONDS = 0.03
LOOPED = 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("pull", "hand"))
    parser.add_argument("address")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--fanouts", type=lambda text: [int(fanout) for fanout in text.split(",")], required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--prefetch", type=int, required=True)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--read", action="store_true")
    arguments = parser.parse_args()
    # As a rank of `graphmill bench loader` has one.
    torch.set_num_threads(1)
    data = graphmill.connect(arguments.address, transport="shm")
    options = {"batch_size": arguments.batch_size, "shuffle": True, "prefetch": arguments.prefetch}
    loader = graphmill.NeighborLoader(data, arguments.fanouts, **options)
    told = pull(loader, arguments) if arguments.role == "pull" else hand(loader)
    print(json.dumps({"peer": Graphmill.name, "version": Graphmill.version, **told}), flush=True)


def pull(loader: graphmill.NeighborLoader, arguments: argparse.Namespace) -> dict:
    def count(batch) -> tuple[int, int, int, int]:
        values = batch.to_dict().values()
        size = worker.read(values) if arguments.read else sum(getattr(value, "nbytes", 0) for value in values)
        return batch.batch_size, len(batch.n_id), batch.edge_index.shape[1], size

    # Copies: memory that is kept cannot be filled again.
    rates, first = worker.pull(worker.endless(loader), arguments.seconds, count, keep=lambda batch: batch.clone())
    graph = dataset.load(arguments.dataset)
    peer = Graphmill(graph)
    peer.start(arguments.fanouts)
    pairs = [peer.loaded(batch) for batch in first]
    found = worker.Check(graph).delivered(peer, arguments.fanouts, pairs, arguments.batch_size)
    return {"read": arguments.read, **rates, "check": found}


def hand(loader: graphmill.NeighborLoader) -> dict:
    handed, dropped, sizes, mappings = [], [], [], set()
    batches = worker.endless(loader)
    next(batches)
    for _ in range(HANDED):
        time.sleep(REST_SECONDS)
        began = time.perf_counter()
        batch = next(batches)
        had = time.perf_counter()
        mappings.add(tuple(sorted(mapping_of(batch))))
        sizes.append(sum(getattr(value, "nbytes", 0) for value in batch.to_dict().values()))
        dropping = time.perf_counter()
        del batch
        dropped.append(time.perf_counter() - dropping)
        handed.append(had - began)
    used = time.thread_time()
    for _ in itertools.islice(batches, LOOPED):
        pass
    used = time.thread_time() - used
    tenths = statistics.quantiles(handed, n=10)
    return {
        # Of a core, by the thread that iterates, for a loop that does nothing: without what it waits.
        "loop_us": used / LOOPED * 1e6,
        "hand_us": statistics.median(handed) * 1e6,
        "hand_us_90": tenths[-1] * 1e6,
        "drop_us": statistics.median(dropped) * 1e6,
        "bytes_per_batch": statistics.mean(sizes),
        # Where tensors of batches lie: one mapping each, and one that is shared.
        "mappings": sorted(name for several in mappings for name in several),
        "copied": any(len(several) != 1 or not shared(several[0]) for several in mappings),
    }


def mapping_of(batch) -> set[str]:
    """The names of the mappings that the tensors of a batch lie in, from their pointers."""
    return {name_at(value.data_ptr()) for value in batch.to_dict().values() if isinstance(value, torch.Tensor)}


def name_at(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, _, *name = line.split(maxsplit=5)
        begin, end = (int(bound, 16) for bound in span.split("-"))
        if begin <= address < end:
            return name[0] if name else "memory of this process alone"
    raise ValueError(f"nothing is mapped at {address:#x}")


def shared(mapping: str) -> bool:
    return "memfd:" in mapping or mapping.startswith("/dev/shm")


if __name__ == "__main__":
    main()
