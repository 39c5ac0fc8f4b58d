"""Input from object stores and web servers, on loopback."""

import functools
import http.server
import threading

import boto3
import numpy as np
import pytest
from graphs import random_graph, sorted_pairs, write_csv, write_npy, write_parquet
from moto.server import ThreadedMotoServer

GRAPH = random_graph()
PAIRS = np.stack([GRAPH.src, GRAPH.dst], axis=1)


@pytest.fixture
def files(workshop):
    """Files to serve: the same edges twice and the node features."""
    folder = workshop.path / "served"
    folder.mkdir()
    write_csv(folder / "e-0.csv.gz", {"src": GRAPH.src[:700], "dst": GRAPH.dst[:700]})
    write_csv(folder / "e-1.csv.gz", {"src": GRAPH.src[700:], "dst": GRAPH.dst[700:]})
    write_parquet(folder / "e.parquet", {"src": GRAPH.src, "dst": GRAPH.dst})
    write_npy(folder / "x.npy", GRAPH.x)
    return folder


def config(base: str, edges: str) -> str:
    return f'[[nodes]]\nfeatures.x = {{ files = "{base}/x.npy" }}\n[[edges]]\nfiles = "{base}/{edges}"\n'


def assert_whole(dataset):
    assert np.array_equal(sorted_pairs(dataset.only_edges.pairs), sorted_pairs(PAIRS))
    assert np.array_equal(dataset.only_nodes.features["x"], GRAPH.x)


@pytest.fixture
def s3(files):
    """A bucket `graphs` with the files, and the environment to reach it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    client.create_bucket(Bucket="graphs")
    for file in files.iterdir():
        client.upload_file(str(file), "graphs", f"cora/{file.name}")
    yield {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    server.stop()


def test_a_bucket_is_read_like_a_folder(workshop, s3):
    assert_whole(workshop.ingest(config("s3://graphs/cora", "e.parquet"), "parquet", env=s3))
    pieces = config("s3://graphs/cora", "e.parquet").replace(
        '"s3://graphs/cora/e.parquet"', '["s3://graphs/cora/e-0.csv.gz", "s3://graphs/cora/e-1.csv.gz"]'
    )
    assert_whole(workshop.ingest(pieces, "pieces", env=s3))


def test_an_absent_object_is_named(workshop, s3):
    text = workshop.describe(config("s3://graphs/cora", "absent.csv"))
    done = workshop.run("ingest", text, "--out", "out", expect=None, env=s3)
    assert done.returncode != 0 and "absent.csv" in done.stderr
    assert not (workshop.path / "out").exists()


@pytest.fixture
def web(files):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=files))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_web_server_is_read_like_a_folder(workshop, web):
    assert_whole(workshop.ingest(config(web, "e.parquet")))


def test_an_absent_page_is_named(workshop, web):
    done = workshop.run("ingest", workshop.describe(config(web, "absent.csv")), "--out", "out", expect=None)
    assert done.returncode != 0 and "absent.csv" in done.stderr
