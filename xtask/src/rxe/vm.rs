//! The virtual machine: emulated, one processor, no disk, a serial port.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Megabytes of its memory.
const MEGABYTES: u32 = 3072;

/// A machine that runs; it ends with whoever looks after it.
pub(super) struct Machine {
    child: Child,
    /// The keyboard of its serial port.
    keys: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// Boots with `megabytes` of memory; `more` are further words for QEMU, `append` for the kernel.
    pub(super) fn start(
        kernel: &Path,
        initramfs: &Path,
        megabytes: u32,
        append: &str,
        more: &[String],
    ) -> Result<Self> {
        // Hardware virtualisation may be offered and hang; emulation is the same everywhere.
        // Whatever ends this process, a kill too, ends the machine.
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
        // Ends with the pipe, that is with the machine.
        thread::spawn(move || {
            for line in serial_lines(serial) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, keys, lines })
    }

    /// Types a line.
    pub(super) fn type_line(&mut self, line: &str) -> Result<()> {
        let keys = self.keys.as_mut().ok_or("the machine has no keyboard")?;
        Ok(writeln!(keys, "{line}").and_then(|()| keys.flush())?)
    }

    /// The next line that it prints.
    pub(super) fn line(&self, deadline: Instant) -> Result<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(left).map_err(|e| match e {
            RecvTimeoutError::Timeout => "the machine was still busy when its time was over".into(),
            RecvTimeoutError::Disconnected => "the machine ended without telling how it went".into(),
        })
    }
}

/// Boots, prints what comes from the serial port, and gives the number behind `mark` there.
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

/// Lines of a terminal: with carriage returns, not always UTF-8.
fn serial_lines(serial: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(serial)
        .split(b'\n')
        .map_while(|line| line.ok())
        .map(|line| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// The exit status, if the line is the one that tells it.
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
