//! The virtual machine: emulated, one processor, no disk, no network, a serial port.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Megabytes of its memory.
const MEMORY: &str = "3072";

/// Ends the machine with whoever looks after it.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots, prints what comes from the serial port, and gives the number behind `mark` there.
pub(super) fn boot(kernel: &Path, initramfs: &Path, mark: &str, patience: Duration) -> Result<i32> {
    let deadline = Instant::now() + patience;
    // Hardware virtualisation may be offered and hang; emulation is the same everywhere.
    let mut machine = Machine(
        // Whatever ends this process, a kill too, ends the machine.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-accel", "tcg", "-cpu", "qemu64", "-smp", "1", "-m", MEMORY])
            .args([
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                "stdio",
            ])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("qemu-system-x86_64: {e}"))?,
    );
    let serial = machine.0.stdout.take().ok_or("the machine has no serial port")?;
    let (send, lines) = channel();
    // Ends with the pipe, that is with the machine.
    thread::spawn(move || {
        for line in serial_lines(serial) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => match status(&line, mark) {
                Some(status) => return status,
                None => println!("{line}"),
            },
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("the machine was still busy after {} s", patience.as_secs()).into());
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the machine ended without telling how the tests did".into());
            }
        }
    }
}

/// Lines of a terminal: with carriage returns, not always UTF-8.
fn serial_lines(serial: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(serial)
        .split(b'\n')
        .map_while(|line| line.ok())
        .map(|line| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// The exit status, if the line is the one that tells it.
fn status(line: &str, mark: &str) -> Option<Result<i32>> {
    let (_, number) = line.split_once(mark)?;
    Some(number.trim().parse().map_err(|e| format!("{line}: {e}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_tells_how_it_went() {
        let printed = &b"test a ... ok\r\nodd \xff\r\nmark:1\r\n"[..];
        let lines: Vec<_> = serial_lines(printed).collect();
        assert_eq!(lines.len(), 3);
        assert!(status(&lines[0], "mark:").is_none());
        assert_eq!(status(&lines[2], "mark:").unwrap().unwrap(), 1);
        assert!(status("mark:what", "mark:").unwrap().is_err());
    }
}
