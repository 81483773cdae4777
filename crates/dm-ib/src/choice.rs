//! The choice of a device, a port and a GID, by name and number or automatically.

/// The part of this machine's RDMA hardware to use; `None` means an automatic choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceChoice {
    /// The device's name. By default the first device with an active port.
    pub name: Option<String>,
    /// The number of its port, from 1. By default the first active one.
    pub port: Option<u8>,
    /// The index of its GID. By default RoCE v2 over IPv4 if there is one, else RoCE v2, else any.
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
