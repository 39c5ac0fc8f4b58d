//! A bad network for tests in other languages: `faulty-proxy SERVER [SEED]` says where it listens, then does what the lines of
//! its input say, until they end.

use std::io::BufRead as _;
use std::process::ExitCode;

use graphmill_testing::{Fault, Proxy};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().ok_or("say where the server is: faulty-proxy HOST:PORT [SEED]")?.parse()?;
    let seed = arguments.next().map_or(Ok(0), |seed| seed.parse())?;
    let proxy = Proxy::start(server, seed)?;
    println!("listening on {}", proxy.address());
    for line in std::io::stdin().lock().lines() {
        proxy.apply(line?.parse::<Fault>()?);
        println!("done");
    }
    Ok(())
}
