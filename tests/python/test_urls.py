"""Input from object stores and web servers, on loopback."""

import functools
import http.server
import os
import subprocess
import threading
from pathlib import Path

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


def put(folder: Path, prefix: str, env: dict):
    """Copies a folder into the bucket, as `aws s3 cp --recursive` does."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=env["AWS_ENDPOINT_URL"], **keys)
    for file in tree(folder):
        client.upload_file(str(folder / file), "graphs", f"{prefix}/{file}")


def tree(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def serve(workshop, url: str, *flags, env: dict) -> subprocess.CompletedProcess:
    """Starts a server that stops when it is ready, because its standard input is closed."""
    command = [workshop.binary, "serve", url, "--cache-dir", "cache", "--listen", "127.0.0.1:0", "--quiet"]
    environment = {**os.environ, **env}
    return subprocess.run(
        [*command, "--until-stdin-closes", *flags],
        cwd=workshop.path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )


def test_a_dataset_in_a_bucket_is_served(workshop, s3):
    # A name whose folder is escaped on disk, and so in the bucket.
    workshop.ingest(config("served", "e.parquet").replace("[[edges]]", '[[edges]]\ntype = "no.de:to:no.de"')
                    .replace("[[nodes]]", '[[nodes]]\ntype = "no.de"'), "whole")
    workshop.run("partition", "whole", "--parts", "2", "--out", "cut", "--quiet")
    put(workshop.path / "cut", "sets/cut", s3)
    whole = tree(workshop.path / "cut")
    assert any("%2E" in path for path in whole)

    done = serve(workshop, "s3://graphs/sets/cut", "--partition", "1", env=s3)
    assert done.returncode == 0, done.stderr
    [near] = (workshop.path / "cache").iterdir()
    assert tree(near) == {path: data for path, data in whole.items() if not path.startswith("part-00000/")}
    assert serve(workshop, "s3://graphs/sets/cut", env=s3).returncode == 0
    assert tree(near) == whole


def test_a_bucket_without_credentials_names_the_variables(workshop, s3):
    # Without keys the store asks the machine it runs on; here nobody answers.
    env = {key: value for key, value in s3.items() if "KEY" not in key}
    done = serve(workshop, "s3://graphs/sets/none", env={**env, "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 1
    assert "s3://graphs/sets/none/manifest.json" in done.stderr and "AWS_ACCESS_KEY_ID" in done.stderr, done.stderr


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
