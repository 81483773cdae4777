//! Runs a memory node as a separate process, for tests. It prints its address, and serves until its standard input
//! ends. Users run `dmkit serve` instead.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is its purpose"
)]

use std::io::Read;
use std::process::ExitCode;

use dm_ib::{MemoryNode, Secret};

const USAGE: &str = "usage: memory-node BYTES [LISTEN-ADDRESS [SECRET-FILE]]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(Ok(bytes)), Some(listen)) = (
        words.first().map(|word| word.parse()),
        words
            .get(1)
            .map_or(Some(([127, 0, 0, 1], 0).into()), |word| word.parse().ok()),
    ) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    match serve(bytes, listen, words.get(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn serve(
    bytes: u64,
    listen: std::net::SocketAddr,
    secret: Option<&String>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = MemoryNode::builder(bytes).listen(listen);
    if let Some(path) = secret {
        builder = builder.secret(Secret::from_file(path.as_ref())?);
    }
    let node = builder.start()?;
    println!("{}", node.address());
    // The node runs until the process that started it closes the pipe or ends.
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    Ok(())
}
