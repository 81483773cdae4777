//! Sends messages of two peers to a memory node's control plane: any bytes and any messages, in any order.
//!
//! The input is a list of pieces: a byte with the length, a byte that picks the peer and the kind of message, and the bytes.
//! Most pieces are message bodies. Some are a whole greeting, so that the code behind it is reached. Some end the connection.
#![no_main]

use std::io;

use dm_control::{
    Answer, Builder, CHUNK_UNIT, Dialogue, Fabric, Message, Port, Ports, Secret, Side, VERSION,
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

fn greet(dialogue: &mut Dialogue<Device>) {
    let ours = [1; 32];
    let hello = Message::Hello {
        version: VERSION,
        nonce: ours,
    };
    let (Some(Message::Challenge { nonce, .. }), _) = dialogue.hear(&hello.encode()) else {
        return;
    };
    let port = Port::default();
    let tag = Secret::default().prove(Side::Client, &[ours, nonce], &[port.bytes()]);
    dialogue.hear(&Message::Proof { tag, port }.encode());
    assert!(dialogue.has_greeted(), "a correct greeting was refused");
}

fuzz_target!(|data: &[u8]| {
    const BYTES: u64 = 1 << 20;
    let desk = Builder::new(BYTES).desk(Device).expect("there are random bytes");
    let mut peers = [Dialogue::new(&desk), Dialogue::new(&desk)];
    let mut end = CHUNK_UNIT;
    let mut rest = data;
    while let [length, how, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let peer = &mut peers[usize::from(how % 2)];
        match how / 2 % 8 {
            0 => *peer = Dialogue::new(&desk),
            1 => greet(peer),
            _ => {
                let greeted = peer.has_greeted();
                let (said, over) = peer.hear(body);
                assert!(said.is_some() || over.is_some(), "something happens");
                if let Some(Message::Answer(answer)) = said {
                    assert!(greeted, "a peer without a greeting got an answer");
                    if let Answer::Chunk { offset } = answer {
                        assert!(offset >= end && offset < BYTES, "a chunk is fresh memory");
                        end = offset + CHUNK_UNIT;
                    }
                }
                assert!(
                    over.is_none() || !peer.has_greeted(),
                    "what ends a dialogue ends all of it"
                );
            }
        }
    }
    drop(peers);
    let metrics = desk.metrics();
    assert!(metrics.contains("dmkit_node_connections 0\n") && metrics.contains("dmkit_node_clients 0\n"));
});
