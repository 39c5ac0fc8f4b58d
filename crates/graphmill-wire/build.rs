//! Compiles the Protobuf files, without a system compiler (`docs/decisions/0007`).

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        ["graphmill/v1/control.proto", "graphmill/v1/data.proto", "graphmill/v1/rendezvous.proto"],
        ["proto"],
    )?;
    // Reflection serves the descriptions as they are.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("graphmill.v1.bin"), files.encode_to_vec())?;
    // Sockets are another crate's: no code that dials.
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
