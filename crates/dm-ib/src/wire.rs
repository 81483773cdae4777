//! The descriptions of queue pairs and memories that a client and a node exchange: the [`Port`]s of `dm-control`.
//!
//! All fields have a fixed size and are little-endian. Decoding never panics.

use core::fmt;

use dm_control::Port;

use crate::ffi::Peer;

/// Memory that a node lends: its address, key and size.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Window {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) bytes: u64,
}

impl fmt::Debug for Window {
    /// Omits the key, because anyone who knows it can access the memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The description of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodePort {
    pub(crate) peer: Peer,
    pub(crate) host: Window,
    pub(crate) chip: Window,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn peer(&mut self) -> Option<Peer> {
        let (number, first_packet) = (self.u32()?, self.u32()?);
        let (gid, lid) = (self.bytes()?, u16::from_le_bytes(self.bytes()?));
        let [mtu, depth] = self.bytes()?;
        Some(Peer {
            number,
            first_packet,
            gid,
            lid,
            mtu,
            depth,
        })
    }
    fn window(&mut self) -> Option<Window> {
        Some(Window {
            address: self.u64()?,
            key: self.u32()?,
            bytes: self.u64()?,
        })
    }
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn put_peer(into: &mut Vec<u8>, p: &Peer) {
    into.extend_from_slice(&p.number.to_le_bytes());
    into.extend_from_slice(&p.first_packet.to_le_bytes());
    into.extend_from_slice(&p.gid);
    into.extend_from_slice(&p.lid.to_le_bytes());
    into.extend_from_slice(&[p.mtu, p.depth]);
}

fn put_window(into: &mut Vec<u8>, w: &Window) {
    into.extend_from_slice(&w.address.to_le_bytes());
    into.extend_from_slice(&w.key.to_le_bytes());
    into.extend_from_slice(&w.bytes.to_le_bytes());
}

/// Returns a client's port.
pub(crate) fn client_port(peer: &Peer) -> Port {
    let mut bytes = Vec::new();
    put_peer(&mut bytes, peer);
    Port::new(bytes).expect("28 bytes are few enough")
}

/// Decodes a client's port. Returns `None` if the bytes are not valid.
pub(crate) fn read_client_port(port: &Port) -> Option<Peer> {
    let mut r = Reader(port.bytes());
    let peer = r.peer()?;
    r.end(peer)
}

impl NodePort {
    pub(crate) fn port(&self) -> Port {
        let mut bytes = Vec::new();
        put_peer(&mut bytes, &self.peer);
        put_window(&mut bytes, &self.host);
        put_window(&mut bytes, &self.chip);
        Port::new(bytes).expect("68 bytes are few enough")
    }

    /// Decodes a node's port. Returns `None` if the bytes are not valid.
    pub(crate) fn read(port: &Port) -> Option<Self> {
        let mut r = Reader(port.bytes());
        let read = Self {
            peer: r.peer()?,
            host: r.window()?,
            chip: r.window()?,
        };
        r.end(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_decode_and_parts_of_ports_do_not() {
        let peer = Peer {
            number: 0x0102_0304,
            first_packet: 5,
            gid: [7; 16],
            lid: 8,
            mtu: 3,
            depth: 16,
        };
        let window = Window {
            address: u64::MAX,
            key: 777_777,
            bytes: 1 << 20,
        };
        let node = NodePort {
            peer,
            host: window,
            chip: Window::default(),
        };
        assert!(!format!("{node:?}").contains("777777"), "a key is shown");
        assert_eq!(read_client_port(&client_port(&peer)), Some(peer));
        assert_eq!(NodePort::read(&node.port()), Some(node));
        for port in [client_port(&peer), node.port()] {
            let mut bytes = port.bytes().to_vec();
            for cut in 0..bytes.len() {
                let part = Port::new(&bytes[..cut]).unwrap();
                assert!(NodePort::read(&part).is_none() || cut == 28);
                assert!(read_client_port(&part).is_none() || cut == 28, "{cut}");
            }
            bytes.push(0);
            let longer = Port::new(bytes).unwrap();
            assert!(NodePort::read(&longer).is_none() && read_client_port(&longer).is_none());
        }
    }
}
