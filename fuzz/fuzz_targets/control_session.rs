//! Sends messages from two peers to a memory node's control plane: any bytes and any messages, in any order.
//!
//! The input is a list of pieces: a byte with the length, a byte that picks the peer and the kind of piece, and the
//! bytes. Most pieces are the bodies of messages; after a greeting, the fuzzer adds a valid authentication code to
//! them. Some pieces do the whole greeting, so that the fuzzer reaches the program code after it. Some are sent without
//! an authentication code, and some end the connection.
#![no_main]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dm_control::{
    Answer, Builder, CHUNK_UNIT, Desk, Dialogue, Fabric, Greeting, Message, Port, Ports, Session, Side, VERSION,
    Welcoming,
};
use libfuzzer_sys::fuzz_target;

/// A device without limits and without queue pairs.
struct Device;

impl Ports for Device {
    type Port = ();
    fn shut(&self, _: &()) -> io::Result<()> {
        Ok(())
    }
}

impl Fabric for Device {
    fn open(&self, theirs: &Port) -> io::Result<((), Port)> {
        Ok(((), theirs.clone()))
    }
}

/// A peer, with its keys after a greeting.
struct Peer {
    dialogue: Dialogue<Device>,
    session: Option<Session>,
}

impl Peer {
    fn new(desk: &Arc<Desk<Device>>) -> Self {
        Self {
            dialogue: Dialogue::new(desk, ([10, 0, 0, 2], 1).into(), HERE.into()),
            session: None,
        }
    }

    fn greet(&mut self) {
        let ours = [1; 32];
        let hello = Message::Hello {
            version: VERSION,
            nonce: ours,
        };
        let Some(Message::Challenge { nonce, .. }) = self.hear(&hello.encode(), false).0 else {
            return;
        };
        let port = Port::default();
        let to = SocketAddr::from(HERE).into();
        let greeting = Greeting {
            secret: None,
            nonces: [ours, nonce],
            to,
            client: &port,
        };
        let proof = Message::Proof {
            tag: greeting.proof(),
            to,
            port: port.clone(),
        };
        let Some(Message::Welcome { boot, port: node, .. }) = self.hear(&proof.encode(), false).0 else {
            panic!("a correct greeting was refused")
        };
        self.session = Some(greeting.session(Side::Client, Welcoming { boot, node: &node }));
    }

    /// Sends a message, with a valid authentication code if `sealed` is set and there was a greeting. Returns the
    /// answer, and whether the dialogue has ended.
    fn hear(&mut self, body: &[u8], sealed: bool) -> (Option<Message>, bool) {
        let session = self.session.as_mut().filter(|_| sealed);
        let (said, end) = match session {
            Some(session) => self.dialogue.hear(&session.seal(body)),
            None => self.dialogue.hear(body),
        };
        let said = said.map(|said| match &mut self.session {
            Some(session) => session.open(&said).map(<[u8]>::to_vec).expect("the node's code holds"),
            None => said,
        });
        let said = said.map(|said| Message::decode(&said).expect("the node speaks the protocol"));
        if end.is_some() {
            self.session = None;
        }
        (said, end.is_some())
    }
}

const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 7471);

fuzz_target!(|data: &[u8]| {
    const BYTES: u64 = 1 << 20;
    let desk = Builder::new(BYTES).desk(Device).expect("there are random bytes");
    let mut peers = [Peer::new(&desk), Peer::new(&desk)];
    let mut end = CHUNK_UNIT;
    let mut rest = data;
    while let [length, how, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let peer = &mut peers[usize::from(how % 2)];
        match how / 2 % 8 {
            0 => *peer = Peer::new(&desk),
            1 => peer.greet(),
            kind => {
                let greeted = peer.dialogue.has_greeted();
                let (said, over) = peer.hear(body, kind > 2);
                assert!(said.is_some() || over, "something happens");
                if let Some(Message::Answer(answer)) = said {
                    assert!(greeted, "a peer without a greeting got an answer");
                    if let Answer::Chunk { offset } = answer {
                        assert!(offset >= end && offset < BYTES, "a chunk is fresh memory");
                        end = offset + CHUNK_UNIT;
                    }
                }
                assert!(
                    !over || !peer.dialogue.has_greeted(),
                    "what ends a dialogue ends all of it"
                );
            }
        }
    }
    drop(peers);
    let metrics = desk.metrics();
    assert!(metrics.contains("dmkit_node_connections 0\n") && metrics.contains("dmkit_node_clients 0\n"));
});
