//! `cargo xtask rxe`: runs dm-ib's tests over soft-RoCE in a virtual machine.
//!
//! ```text
//!  cargo test --no-run ─▶ test binaries ─┐
//!  apt-get download ─▶ kernel, modules ──┼─▶ target/rxe/initramfs ─▶ QEMU ─▶ lines on a serial port ─▶ exit status
//!  this machine's libraries, busybox ────┘
//! ```
//!
//! The command installs only missing packages, leaves nothing running, and stores its files in `target/rxe`. The
//! virtual machine has one processor, because soft-RoCE's atomics are not atomic with those of another processor.

mod archive;
mod kernel;
mod programs;
mod two;
mod vm;

use crate::{Result, debian};
use archive::Archive;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The packages that are needed to build dm-ib and to run it in a virtual machine.
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "libnl-3-dev",
    "libnl-route-3-dev",
    "ibverbs-providers",
    "cmake",
    "libclang-dev",
    "pkg-config",
    "gcc",
    "libc6-dev",
    "binutils",
    "qemu-system-x86",
    "busybox-static",
    "iproute2",
    "util-linux",
    "dpkg",
    "tar",
];

/// The time limit of the virtual machine.
const PATIENCE: Duration = Duration::from_secs(1200);

/// The text before the exit status on the serial port.
const MARK: &str = "dmkit-rxe-exit:";

/// The paths at which libibverbs looks for soft-RoCE's provider; both are compiled into it.
const PROVIDER: &str = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so";
const DRIVER: &str = "/etc/libibverbs.d/rxe.driver";

/// The arguments: one machine that runs tests, or two machines that act as two hosts.
#[derive(Debug, clap::Args)]
pub(crate) struct Rxe {
    /// Run only test binaries whose name contains this.
    #[arg(long, conflicts_with = "two")]
    binary: Option<String>,
    /// Run two virtual machines as two hosts: clients and memory nodes are killed and started again, and a link is cut.
    #[arg(long)]
    two: bool,
    /// Run only tests whose name contains this.
    #[arg(conflicts_with = "two")]
    filter: Option<String>,
}

/// Runs the tests whose names contain `filter`, in the test binaries whose names contain `binary`. If `two` is set,
/// runs the two hosts instead.
pub(crate) fn run(root: &Path, asked: &Rxe) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err("`cargo xtask rxe` runs only on x86-64, because its virtual machine is x86-64".into());
    }
    let mut clock = Clock::default();
    let cache = root.join("target/rxe");
    std::fs::create_dir_all(&cache)?;
    debian::install_missing(PACKAGES)?;
    clock.lap("packages");
    let kernel = kernel::fetch(&cache)?;
    clock.lap("kernel");
    let built = programs::build(root, if asked.two { programs::TWO } else { programs::TESTS })?;
    clock.lap("build");
    if asked.two {
        let went = two::run(&cache, &kernel, &built);
        clock.lap("machines");
        eprintln!("== {}", clock.laps.join(", "));
        return went;
    }
    let binary = |name: &str| asked.binary.as_ref().is_none_or(|part| name.contains(part));
    let tests: Vec<_> = built
        .iter()
        .filter(|program| program.is_test && binary(&program.name))
        .collect();
    if tests.is_empty() {
        return Err("no test binary has a name that contains `--binary`".into());
    }
    let initramfs = cache.join("initramfs.cpio");
    let script = init_script(
        &kernel.modules,
        tests.iter().map(|test| test.path.as_path()),
        asked.filter.as_deref(),
    );
    std::fs::write(&initramfs, image(&cache, &kernel, &built, &script)?)?;
    clock.lap("image");
    let status = vm::boot(&kernel.image, &initramfs, MARK, PATIENCE);
    // The file has some hundred megabytes, and each run writes it again.
    std::fs::remove_file(&initramfs)?;
    let status = status?;
    clock.lap("machine");
    eprintln!("== {}", clock.laps.join(", "));
    match status {
        0 => Ok(()),
        failed => Err(format!("tests failed in the virtual machine, with status {failed}").into()),
    }
}

#[derive(Debug)]
struct Clock {
    last: Instant,
    laps: Vec<String>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            laps: Vec::new(),
        }
    }
}

impl Clock {
    fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.laps
            .push(format!("{name} {:.1} s", (now - self.last).as_secs_f64()));
        self.last = now;
    }
}

/// A part of the scripts that waits until soft-RoCE works. If this takes more than 30 seconds, the machine is switched
/// off.
const ACTIVE: &str = "n=0; until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do\n\
    n=$((n+1)); if [ $n = 300 ]; then echo 'rxe0 does not get active'; poweroff -f; fi; usleep 100000; done\n\
    ulimit -l unlimited\n\
    export RUST_BACKTRACE=1\n";

/// Returns the beginning of every script. It sets up file systems, modules and the loopback interface.
fn loading(modules: &[PathBuf]) -> String {
    let mut script = String::from(
        "#!/bin/sh\n\
         export PATH=/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n",
    );
    for module in modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(script, "insmod /modules/{name} || echo \"no module {name}\"");
    }
    script.push_str("ip link set lo up\n");
    script
}

/// Returns the script that the machine runs as its init process.
fn init_script<'a>(
    modules: &[PathBuf],
    tests: impl Iterator<Item = &'a Path>,
    filter: Option<&str>,
) -> String {
    let mut script = loading(modules);
    script.push_str(
        "ip addr add 10.7.7.1/24 dev dummy0; ip link set dummy0 up\n\
         rdma link add rxe0 type rxe netdev dummy0\n",
    );
    script.push_str(ACTIVE);
    script.push_str("status=0\n");
    let filter = filter.map_or(String::new(), |filter| format!(" '{}'", filter.replace('\'', "")));
    for test in tests {
        let path = test.display();
        let _ = writeln!(
            script,
            "echo '== {path}'; cd /tmp; '{path}' --test-threads=1 --show-output{filter} || status=1"
        );
    }
    let _ = writeln!(script, "echo '{MARK}'$status\npoweroff -f");
    script
}

/// Returns the bytes of the initial file system.
fn image(
    cache: &Path,
    kernel: &kernel::Kernel,
    built: &[programs::Program],
    script: &str,
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file(Path::new("/init"), script.as_bytes(), true);
    for dir in ["/proc", "/sys", "/dev", "/tmp", "/root", "/etc/iproute2"] {
        archive.dir(Path::new(dir));
    }
    let busybox = debian::find("busybox")?;
    archive.file(Path::new("/bin/busybox"), &std::fs::read(busybox)?, true);
    for applet in [
        "sh", "mount", "insmod", "echo", "grep", "usleep", "poweroff", "cat", "ls", "kill", "pidof", "wget",
    ] {
        archive.link(&Path::new("/bin").join(applet), "busybox");
    }
    for module in &kernel.modules {
        let name = Path::new("/modules").join(module.file_name().unwrap_or_default());
        archive.file(&name, &std::fs::read(module)?, false);
    }
    let mut linked = vec![PathBuf::from(PROVIDER)];
    for tool in ["ip", "rdma"] {
        let path = debian::find(tool)?;
        archive.file(&Path::new("/bin").join(tool), &std::fs::read(&path)?, true);
        linked.push(path);
    }
    for program in built {
        archive.file(&program.path, &programs::stripped(&program.path, cache)?, true);
        linked.push(program.path.clone());
    }
    for file in [PROVIDER, DRIVER] {
        archive.file(Path::new(file), &std::fs::read(file)?, false);
    }
    for library in programs::libraries(&linked)? {
        archive.file(&library, &std::fs::read(&library)?, true);
    }
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_loads_runs_and_tells_in_this_order() {
        let modules = [PathBuf::from("a/ib_core.ko"), PathBuf::from("b/rdma_rxe.ko")];
        let tests = [Path::new("/t/verbs-1"), Path::new("/t/indexes-2")];
        let script = init_script(&modules, tests.into_iter(), Some("chain"));
        let order = [
            "insmod /modules/ib_core.ko",
            "insmod /modules/rdma_rxe.ko",
            "rdma link add",
            "'/t/verbs-1' --test-threads=1 --show-output 'chain' || status=1",
            "'/t/indexes-2' --test-threads=1 --show-output 'chain' || status=1",
            MARK,
            "\npoweroff",
        ];
        let places: Vec<_> = order.iter().map(|part| script.find(part)).collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{script}"
        );
    }
}
