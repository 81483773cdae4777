//! The choice of a device, a port and a GID, by name and number or automatically.

/// The RDMA device, port and GID to use. `None` stands for an automatic choice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceChoice {
    /// The name of the device. By default, this is the first device with an active port.
    pub name: Option<String>,
    /// The number of the port, from 1. By default, this is the first active port.
    pub port: Option<u8>,
    /// The index of the GID. By default, this is a GID of RoCE v2 over IPv4, otherwise one of RoCE v2, otherwise one
    /// with an IPv4 address, otherwise any.
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
