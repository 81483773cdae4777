//! The virtual machine: emulated, with one processor, a serial port and no disk.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Size of the machine's memory, in megabytes.
const MEGABYTES: u32 = 3072;

/// A running virtual machine. Dropping it stops the machine.
pub(super) struct Machine {
    child: Child,
    /// The input of the machine's serial port.
    keys: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The machine may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// Boots a machine with `megabytes` of memory. `more` has further arguments for QEMU, and `append` is added to the
    /// kernel's command line.
    pub(super) fn start(
        kernel: &Path,
        initramfs: &Path,
        megabytes: u32,
        append: &str,
        more: &[String],
    ) -> Result<Self> {
        // Hardware virtualisation is not used, because it can hang even where it is available. Emulation works on
        // every machine. `setpriv` ends the machine with this process, even if the process is killed.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-accel", "tcg", "-cpu", "qemu64", "-smp", "1"])
            .args(["-m", &megabytes.to_string()])
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
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 {append}")])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("qemu-system-x86_64: {e}"))?;
        let keys = child.stdin.take();
        let serial = child.stdout.take().ok_or("the machine has no serial port")?;
        let (send, lines) = channel();
        // The thread ends when the pipe is closed, which happens when the machine ends.
        thread::spawn(move || {
            for line in serial_lines(serial) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, keys, lines })
    }

    /// Types a line into the serial port.
    pub(super) fn type_line(&mut self, line: &str) -> Result<()> {
        let keys = self.keys.as_mut().ok_or("the machine has no keyboard")?;
        Ok(writeln!(keys, "{line}").and_then(|()| keys.flush())?)
    }

    /// Returns the next line that the machine prints.
    pub(super) fn line(&self, deadline: Instant) -> Result<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).map_err(|e| match e {
            RecvTimeoutError::Timeout => "the virtual machine did not finish within its time limit".into(),
            RecvTimeoutError::Disconnected => {
                "the virtual machine ended without printing an exit status".into()
            }
        })
    }
}

/// Boots a machine, prints the output of its serial port, and returns the number after `mark` in the output.
pub(super) fn boot(kernel: &Path, initramfs: &Path, mark: &str, patience: Duration) -> Result<i32> {
    let deadline = Instant::now() + patience;
    let machine = Machine::start(kernel, initramfs, MEGABYTES, "", &[])?;
    loop {
        let line = machine.line(deadline)?;
        match status(&line, mark) {
            Some(status) => return status,
            None => println!("{line}"),
        }
    }
}

/// Splits the output of a terminal into lines. Lines end in carriage returns and are not always UTF-8.
fn serial_lines(serial: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(serial)
        .split(b'\n')
        .map_while(|line| line.ok())
        .map(|line| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Returns the exit status if the line contains it.
pub(super) fn status(line: &str, mark: &str) -> Option<Result<i32>> {
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
