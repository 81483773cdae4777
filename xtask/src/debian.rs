//! The packages and programs of a Debian machine.

use crate::Result;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Installs those of `packages` that are missing. Uses sudo if the user is not root.
pub(crate) fn install_missing(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("== installing {}", missing.join(" "));
    let apt = |arguments: &[&str]| {
        // Root does not need sudo, which might not be installed.
        let root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
        let mut command = if root {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        };
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .arg("-qq")
            .args(arguments);
        succeed(&mut command)
    };
    apt(&["update"])?;
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install)
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(std::process::Stdio::null());
    output(&mut query).is_ok_and(|status| status == "installed")
}

/// Returns the path of a program of this machine. Looks only in the usual directories, and not in `PATH`.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .iter()
    .map(|dir| Path::new(dir).join(name))
    .find(|path| path.is_file())
    .ok_or_else(|| format!("no {name} on this machine").into())
}

/// Runs `command`, and returns its standard output. Fails if the command fails, or if its output is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{}", output.status, said.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `command` to its end. The output of `command` goes to the output of this process.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {status}").into())
    }
}
