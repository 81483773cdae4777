//! Debian's 6.1 kernel, which is downloaded once and unpacked, but never installed.
//!
//! This kernel has soft-RoCE (the `-cloud` flavour does not), and runs soft-RoCE in the context of the program that
//! posts. Later kernels use a work queue, which does not run while a program polls.

use crate::{Result, debian::output};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The modules to load, besides those on which they depend. `crc32_generic` computes soft-RoCE's checksum, which the
/// driver requests by name.
const MODULES: &[&str] = &[
    "crc32_generic",
    "dummy",
    "virtio_pci",
    "virtio_net",
    "ib_uverbs",
    "rdma_rxe",
];

/// A kernel and its modules, in the order in which they are loaded.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) modules: Vec<PathBuf>,
}

/// Returns the kernel in `cache`, and downloads it if it is not there.
pub(super) fn fetch(cache: &Path) -> Result<Kernel> {
    // Change this name when more files of the package are needed, because an older directory lacks them.
    let dir = cache.join("kernel-with-network");
    if !dir.is_dir() {
        download(cache, &dir)?;
    }
    let mut image = None;
    for entry in std::fs::read_dir(dir.join("boot"))? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        {
            image = Some(path);
        }
    }
    let image = image.ok_or("the kernel package holds no kernel: delete target/rxe")?;
    let mut all = Vec::new();
    files_below(&dir.join("lib/modules"), &mut all)?;
    let modules = in_loading_order(MODULES, |name| {
        let path = all
            .iter()
            .find(|path| module_name(path) == name)
            .ok_or_else(|| format!("the kernel package holds no module {name}"))?;
        Ok((path.clone(), needs(&std::fs::read(path)?)))
    })?;
    Ok(Kernel { image, modules })
}

fn download(cache: &Path, dir: &Path) -> Result<()> {
    let found = output(Command::new("apt-cache").args([
        "search",
        "--names-only",
        r"^linux-image-6\.1\.0-[0-9]+-amd64$",
    ]))?;
    let package = newest(&found).ok_or(
        "apt knows no linux-image-6.1.0-*-amd64: add Debian 12 to its sources, or run `apt-get update`",
    )?;
    eprintln!("== downloading {package}");
    let fresh = cache.join("kernel.new");
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh)?;
    output(
        Command::new("apt-get")
            .args(["download", "-qq", &package])
            .current_dir(&fresh),
    )?;
    let mut archive = None;
    for entry in std::fs::read_dir(&fresh)? {
        archive = Some(entry?.path());
    }
    let archive = archive.ok_or("apt-get downloaded nothing")?;
    // Unpacks only the files that are needed, because the package has some hundreds of megabytes.
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(&archive)
        .stdout(Stdio::piped())
        .spawn()?;
    let tar = unpack.stdout.take().ok_or("dpkg-deb gives no archive")?;
    let status = Command::new("tar")
        .args(["--extract", "--wildcards", "--directory"])
        .arg(&fresh)
        .args([
            "./boot/vmlinuz-*",
            "./lib/modules/*/kernel/crypto/*",
            "./lib/modules/*/kernel/lib/*",
            "./lib/modules/*/kernel/net/ipv4/*",
            "./lib/modules/*/kernel/net/ipv6/*",
            "./lib/modules/*/kernel/net/core/*",
            "./lib/modules/*/kernel/drivers/net/dummy.ko",
            "./lib/modules/*/kernel/drivers/net/net_failover.ko",
            "./lib/modules/*/kernel/drivers/net/virtio_net.ko",
            "./lib/modules/*/kernel/drivers/virtio/*",
            "./lib/modules/*/kernel/drivers/infiniband/*",
        ])
        .stdin(tar)
        .status()?;
    if !unpack.wait()?.success() || !status.success() {
        return Err(format!("{} could not be unpacked", archive.display()).into());
    }
    std::fs::remove_file(&archive)?;
    // Only a complete directory gets this name.
    Ok(std::fs::rename(&fresh, dir)?)
}

/// Returns the package with the highest revision in the output of `apt-cache search`.
fn newest(found: &str) -> Option<String> {
    let packages = found.lines().filter_map(|line| line.split_whitespace().next());
    packages
        .max_by_key(|package| package.split('-').rev().nth(1)?.parse::<u32>().ok())
        .map(str::to_owned)
}

fn files_below(dir: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, all)?;
        } else {
            all.push(path);
        }
    }
    Ok(())
}

/// Returns a module's name from its file name, with underscores for dashes.
fn module_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.replace('-', "_")
}

/// Returns the modules that a module's file names as its dependencies.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|window| window == FIELD) else {
        return Vec::new();
    };
    let value = &module[at + FIELD.len()..];
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let value = String::from_utf8_lossy(&value[..end]);
    value
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Returns the files of `wanted` and of their dependencies. Each module comes after its own dependencies.
fn in_loading_order(
    wanted: &[&str],
    mut look: impl FnMut(&str) -> Result<(PathBuf, Vec<String>)>,
) -> Result<Vec<PathBuf>> {
    enum Step {
        Need(String),
        Load(PathBuf),
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    let mut steps: Vec<_> = wanted
        .iter()
        .rev()
        .map(|name| Step::Need((*name).to_owned()))
        .collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Load(path) => order.push(path),
            Step::Need(name) if seen.insert(name.clone()) => {
                let (path, needs) = look(&name)?;
                steps.push(Step::Load(path));
                steps.extend(needs.into_iter().map(Step::Need));
            }
            Step::Need(_) => {}
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_behind_what_it_needs() {
        let order = in_loading_order(&["rxe", "dummy"], |name| {
            let needs = match name {
                "rxe" => vec!["core".to_owned(), "tunnel".to_owned()],
                "core" | "tunnel" => vec!["base".to_owned()],
                _ => Vec::new(),
            };
            Ok((PathBuf::from(name), needs))
        })
        .unwrap();
        let place = |name: &str| order.iter().position(|path| path == Path::new(name)).unwrap();
        assert_eq!(order.len(), 5);
        assert!(place("base") < place("core") && place("base") < place("tunnel"));
        assert!(place("core") < place("rxe") && place("tunnel") < place("rxe"));
        assert!(in_loading_order(&["none"], |_| Err("none".into())).is_err());
    }

    #[test]
    fn needs_are_read_from_the_file() {
        let file = b"\x7fELF...license=GPL\0depends=ib_core,ip6-udp-tunnel\0retpoline=Y\0";
        assert_eq!(needs(file), ["ib_core", "ip6_udp_tunnel"]);
        assert!(needs(b"license=GPL\0depends=\0").is_empty() && needs(b"").is_empty());
        assert_eq!(module_name(Path::new("x/ib-core.ko")), "ib_core");
    }

    #[test]
    fn the_highest_revision_is_the_newest() {
        let found = "linux-image-6.1.0-9-amd64 - Linux 6.1\nlinux-image-6.1.0-56-amd64 - Linux 6.1\n";
        assert_eq!(newest(found).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(newest(""), None);
    }
}
