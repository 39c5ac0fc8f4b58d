//! Compiles what is used of etcd's API, without a system compiler (`docs/decisions/0007`).

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["etcd.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).build_transport(false).compile_fds(files)?;
    Ok(())
}
