//! RDMA devices as the kernel lists them, without libibverbs.

use std::fs;
use std::path::Path;

/// The kernel's list of devices.
pub(super) const INFINIBAND: &str = "/sys/class/infiniband";

/// A device's port, as the kernel describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SysPort {
    pub(super) device: String,
    pub(super) port: String,
    /// The port's state, such as `ACTIVE`.
    pub(super) state: String,
    /// The type of the port's link, `Ethernet` or `InfiniBand`.
    pub(super) link: String,
}

/// Returns every port of every device below `root`; none if there is no device or no kernel module.
pub(super) fn ports(root: &Path) -> Vec<SysPort> {
    let mut found = Vec::new();
    for device in names(root) {
        let ports = root.join(&device).join("ports");
        for port in names(&ports) {
            let read = |name| {
                let text = fs::read_to_string(ports.join(&port).join(name)).unwrap_or_default();
                // The kernel writes a state as `4: ACTIVE`.
                text.rsplit(':').next().unwrap_or_default().trim().to_owned()
            };
            found.push(SysPort {
                state: read("state"),
                link: read("link_layer"),
                device: device.clone(),
                port,
            });
        }
    }
    found
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_the_kernel_writes_them() {
        let root = std::env::temp_dir().join(format!("dmkit-sysfs-{}", std::process::id()));
        let port = root.join("mlx5_0/ports/1");
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        fs::write(port.join("link_layer"), "Ethernet\n").unwrap();
        let found = ports(&root);
        fs::remove_dir_all(&root).unwrap();
        let expected = SysPort {
            device: "mlx5_0".to_owned(),
            port: "1".to_owned(),
            state: "ACTIVE".to_owned(),
            link: "Ethernet".to_owned(),
        };
        assert_eq!(found, [expected]);
        assert_eq!(ports(&root), []);
    }
}
