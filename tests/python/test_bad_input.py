"""Input that cannot be used is named by file, row and reason, and leaves nothing behind."""

import numpy as np
import pytest
from graphs import sorted_pairs, write_csv, write_npy, write_parquet
from reader import Dataset

EDGES = '[[nodes]]\ncount = 3\n[[edges]]\nfiles = "e.csv"\n'


@pytest.mark.parametrize(
    "line, reason",
    [
        ("x,1", "x"),
        ("1", "fields"),
        ("7,1", "7"),
        ("-1,0", "-1"),
        ("1,", "no value"),
        ("99999999999999999999,1", "99999999999999999999"),
    ],
)
def test_a_bad_row_is_named(workshop, line, reason):
    (workshop.path / "e.csv").write_text(f"src,dst\n0,1\n1,2\n{line}\n2,0\n")
    message = workshop.refuse(EDGES)
    assert "e.csv" in message and "row 3" in message and reason in message, message


def test_bad_rows_are_counted_and_skipped_when_asked(workshop):
    (workshop.path / "e.csv").write_text("src,dst\n0,1\nx,2\n1,2\n2,9\n2,0\n")
    config = workshop.describe(EDGES + "edge_ids = true\n")
    done = workshop.run("ingest", config, "--out", "out", "--on-error", "skip")
    assert "2" in done.stdout + done.stderr and "skipped" in done.stdout + done.stderr
    edges = Dataset(workshop.path / "out").only_edges
    assert sorted_pairs(edges.pairs).tolist() == [[0, 1], [1, 2], [2, 0]]
    assert sorted(edges.primary.edge_ids.tolist()) == [0, 2, 4], "skipped rows leave gaps in the edge ids"


@pytest.mark.parametrize("weight", ["-1.0", "nan", "inf"])
def test_weights_are_finite_and_not_negative(workshop, weight):
    (workshop.path / "e.csv").write_text(f"src,dst,w\n0,1,0.5\n1,2,{weight}\n")
    message = workshop.refuse(EDGES + 'weight = "w"\n')
    assert "e.csv" in message and "row 2" in message, message


def test_null_cells_of_parquet_are_bad_rows(workshop):
    write_parquet(workshop.path / "e.parquet", {"src": [0, None, 2], "dst": [1, 1, 1]})
    message = workshop.refuse(EDGES.replace("e.csv", "e.parquet"))
    assert "e.parquet" in message and "row 2" in message, message


def test_rows_are_counted_per_file(workshop):
    write_csv(workshop.path / "a.csv", {"src": [0, 1], "dst": [1, 2]})
    (workshop.path / "b.csv").write_text("src,dst\n0,1\n1,oops\n")
    message = workshop.refuse(EDGES.replace('"e.csv"', '["a.csv", "b.csv"]'))
    assert "b.csv" in message and "row 2" in message and "oops" in message, message


@pytest.mark.parametrize(
    "config, words",
    [
        ('[[edges]]\nfiles = "e.csv"\nsorce = "a"\n', ["sorce"]),
        ('colour = "red"\n[[edges]]\nfiles = "e.csv"\n', ["colour"]),
        ('[[edges]]\nfiles = "e.csv"\nsrc = "from"\n', ["from", "src"]),
        ('[[edges]]\nfiles = "absent.csv"\n', ["absent.csv"]),
        ('[[edges]]\nfiles = "absent-*.csv"\n', ["absent-*.csv"]),
        ('[[edges]]\nfiles = "e.csv"\nduplicates = "maybe"\n', ["maybe"]),
        ('[[nodes]]\ntype = "a"\n[[edges]]\nfiles = "e.csv"\n', ["type"]),
        ('[[nodes]]\nlabels = { files = "short.npy" }\ncount = 3\n[[edges]]\nfiles = "e.csv"\n', ["short.npy", "2", "3"]),
        ('[[edges]]\nfiles = "e.xlsx"\n', ["e.xlsx"]),
        ("", ["nodes", "edges"]),
    ],
)
def test_a_wrong_description_is_explained(workshop, config, words):
    write_csv(workshop.path / "e.csv", {"src": [0, 1], "dst": [1, 2]})
    (workshop.path / "e.xlsx").write_bytes(b"PK")
    write_npy(workshop.path / "short.npy", np.array([0, 1]))
    message = workshop.refuse(config)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("file", ["e.csv.gz", "e.parquet", "e.npy", "e.npz"])
def test_a_truncated_file_is_refused(workshop, file):
    numbers = np.random.default_rng(0).integers(0, 1000, 3000)
    path = workshop.path / file
    match path.suffix:
        case ".gz":
            write_csv(path, {"src": numbers, "dst": numbers})
        case ".parquet":
            write_parquet(path, {"src": numbers, "dst": numbers})
        case ".npy":
            write_npy(path, np.stack([numbers, numbers], axis=1))
        case ".npz":
            np.savez(path, src=numbers, dst=numbers)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert file in workshop.refuse(f'[[edges]]\nfiles = "{file}"\nsrc = 0\ndst = 1\n')


def test_an_array_in_fortran_order_is_refused_with_the_remedy(workshop):
    write_npy(workshop.path / "e.npy", np.asfortranarray(np.arange(12).reshape(6, 2)))
    assert "ascontiguousarray" in workshop.refuse('[[edges]]\nfiles = "e.npy"\n')


def test_an_existing_target_is_not_touched(workshop):
    (workshop.path / "e.csv").write_text("src,dst\n0,1\n")
    (workshop.path / "precious").mkdir()
    (workshop.path / "precious" / "thesis.txt").write_text("years of work")
    done = workshop.run("ingest", workshop.describe(EDGES), "--out", "precious", expect=None)
    assert done.returncode != 0 and "precious" in done.stderr
    assert (workshop.path / "precious" / "thesis.txt").read_text() == "years of work"
