"""The two samplers, the law in plain Python and the binary, behind one face: batches of a toy."""

from law import Law
from sample import ask, sample
from toys import describe


class LawSampler:
    def batches(self, graph, config: dict, seeds: list, batch_size=None, epoch=0) -> list[dict]:
        return Law(graph, config).batches(seeds, epoch=epoch, batch_size=batch_size)


class BinarySampler:
    """Writes a toy to files, ingests it once, and samples from the dataset."""

    def __init__(self, workshop):
        self.workshop = workshop
        self.ingested = []

    def batches(self, graph, config: dict, seeds: list, batch_size=None, epoch=0) -> list[dict]:
        flags = [*ask(seeds), "--epoch", epoch, "--batch-size", batch_size or len(seeds)]
        folder, manifest = self._dataset(graph)
        return sample(self.workshop, folder, manifest, config, *flags)

    def _dataset(self, graph) -> tuple[str, dict]:
        for known, folder, manifest in self.ingested:
            if known is graph:
                return folder, manifest
        folder = f"toy-{len(self.ingested)}"
        manifest = self.workshop.ingest(describe(graph, self.workshop.path), folder).manifest
        self.ingested.append((graph, folder, manifest))
        return folder, manifest
