//! A memory node as a process of its own: prints its address, serves until its input ends.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is its purpose"
)]

use std::io::Read;
use std::process::ExitCode;

use dm_ib::{IbError, MemoryNode};

const USAGE: &str = "usage: memory-node BYTES [LISTEN-ADDRESS [DEVICE]]";

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

fn serve(bytes: u64, listen: std::net::SocketAddr, device: Option<&String>) -> Result<(), IbError> {
    let mut builder = MemoryNode::builder(bytes).listen(listen);
    if let Some(device) = device {
        builder = builder.device(device);
    }
    let node = builder.start()?;
    println!("{}", node.address());
    // Until whoever started it closes the pipe, or ends.
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    Ok(())
}
