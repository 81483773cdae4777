//! Which device, port and GID: by name and number, or picked.

/// What to use of this machine's RDMA hardware; what is left open is picked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceChoice {
    /// The device's name; else the first with an active port.
    pub name: Option<String>,
    /// The number of its port, from 1; else the first that is active.
    pub port: Option<u8>,
    /// The index of its GID; else RoCE v2 over IPv4, RoCE v2, what there is, in this order.
    pub gid: Option<u8>,
}

impl From<&str> for DeviceChoice {
    fn from(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..Self::default()
        }
    }
}
