//! Dialogues without a network: the greeting, and any messages in any order.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ledger::Facts;
use crate::wire::{Entrance, Identity, Token};

/// A device whose queue pairs are numbers. It records which ones are open, and which ones were shut.
#[derive(Default)]
struct Device {
    state: Mutex<(u32, Vec<u32>)>,
}

/// A number that returns to the device when the port is dropped.
struct Number(u32);

impl Ports for Device {
    type Port = Number;
    fn shut(&self, port: &Number) -> io::Result<()> {
        self.state.with(|(_, shut)| shut.push(port.0));
        Ok(())
    }
}

impl Fabric for Device {
    fn open(&self, theirs: &Port) -> io::Result<(Number, Port)> {
        if theirs.bytes() == b"bad" {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = self.state.with(|(next, _)| {
            *next += 1;
            *next
        });
        Ok((Number(number), Port::new(*b"mine").unwrap()))
    }
}

fn desk(secret: Option<&[u8]>) -> Arc<Desk<Device>> {
    let fabric = Arc::new(Device::default());
    let facts = Facts {
        bytes: 1 << 20,
        boot: 5,
        lease: Duration::from_secs(1),
        clients_per_connection: 16,
    };
    Arc::new(Desk {
        ledger: Mutex::new(Ledger::new(Arc::clone(&fabric), facts)),
        fabric,
        secret: secret.map(|bytes| Secret::new(bytes).unwrap()),
        metrics: Metrics::default(),
        strangers_lines: Lines::default(),
        clients_lines: Lines::default(),
        bytes: 1 << 20,
        born: Instant::now(),
    })
}

const SECRET: &[u8] = b"a secret of enough bytes";

/// Sends a hello and a proof with `secret`; returns the node's last message.
fn greet(dialogue: &mut Dialogue<Device>, secret: &Secret, port: &Port) -> (Option<Message>, Option<End>) {
    let ours = [9; 32];
    let hello = Message::Hello {
        version: VERSION,
        nonce: ours,
    };
    let (Some(Message::Challenge { nonce, .. }), None) = dialogue.hear(&hello.encode()) else {
        panic!("a greeting is answered by a challenge")
    };
    let tag = secret.prove(Side::Client, &[ours, nonce], &[port.bytes()]);
    let proof = Message::Proof {
        tag,
        port: port.clone(),
    };
    dialogue.hear(&proof.encode())
}

#[test]
fn nothing_is_opened_for_whoever_lacks_the_secret() {
    let desk = desk(Some(SECRET));
    for wrong in [
        Secret::default(),
        Secret::new(b"another one of 16 bytes").unwrap(),
    ] {
        let mut dialogue = Dialogue::new(&desk);
        let (said, end) = greet(&mut dialogue, &wrong, &Port::default());
        assert_eq!(said, Some(Message::Refuse(Refusal::Secret)));
        assert_eq!(end.unwrap().to_string(), "wrong secret");
        let call = Message::Enter(Entrance::Claim);
        assert!(matches!(
            dialogue.hear(&call.encode()),
            (None, Some(End::OutOfTurn))
        ));
    }
    assert_eq!(desk.fabric.state.with(|(opened, _)| *opened), 0);
    let mut dialogue = Dialogue::new(&desk);
    let (said, end) = greet(&mut dialogue, &Secret::new(SECRET).unwrap(), &Port::default());
    assert!(matches!(said, Some(Message::Welcome { boot: 5, .. })) && end.is_none());
}

#[test]
fn a_proof_is_good_for_one_dialogue() {
    let desk = desk(Some(SECRET));
    let mut first = Dialogue::new(&desk);
    let hello = Message::Hello {
        version: VERSION,
        nonce: [1; 32],
    }
    .encode();
    let (Some(Message::Challenge { nonce, secret: true }), None) = first.hear(&hello) else {
        panic!("a challenge")
    };
    let tag = Secret::new(SECRET)
        .unwrap()
        .prove(Side::Client, &[[1; 32], nonce], &[b""]);
    let proof = Message::Proof {
        tag,
        port: Port::default(),
    }
    .encode();
    // An eavesdropper replays the proof in another dialogue.
    let mut second = Dialogue::new(&desk);
    second.hear(&hello);
    assert_eq!(second.hear(&proof).0, Some(Message::Refuse(Refusal::Secret)));
    assert!(matches!(first.hear(&proof).0, Some(Message::Welcome { .. })));
}

#[test]
fn other_versions_and_bad_ports_are_told() {
    let desk = desk(None);
    let mut dialogue = Dialogue::new(&desk);
    let hello = Message::Hello {
        version: VERSION + 1,
        nonce: [0; 32],
    };
    let (said, _) = dialogue.hear(&hello.encode());
    assert_eq!(said, Some(Message::Refuse(Refusal::Version(VERSION))));
    let mut dialogue = Dialogue::new(&desk);
    let (said, _) = greet(&mut dialogue, &Secret::default(), &Port::new(*b"bad").unwrap());
    assert_eq!(said, Some(Message::Refuse(Refusal::Device)));
}

#[test]
fn what_ends_a_dialogue_gives_its_clients_back() {
    let desk = desk(None);
    let census = || desk.ledger.with(|l| l.census(Instant::now()));
    let mut dialogue = Dialogue::new(&desk);
    greet(&mut dialogue, &Secret::default(), &Port::default());
    let claim = Message::Enter(Entrance::Claim);
    dialogue.hear(&claim.encode());
    assert_eq!((census().connections, census().clients), (1, 1));
    assert!(dialogue.hear(b"\xffgarbage").1.is_some());
    assert_eq!((census().connections, census().clients), (0, 0));
}

/// Messages with small numbers, so that they collide. Peers cannot guess tokens, except for those of other
/// givers.
fn said() -> impl Strategy<Value = Message> {
    let id = 0..6_u16;
    let identity =
        (id.clone(), 0..3_u32, 4..7_u64).prop_map(|(client, epoch, giver)| Identity { client, epoch, giver });
    let entry = prop_oneof![
        4 => Just(Entrance::Claim),
        1 => (identity.clone(), 0..2_u8)
            .prop_map(|(identity, token)| Entrance::Attach { identity, token: Token([token; 16]) }),
    ];
    let request = prop_oneof![
        1 => Just(Request::Release),
        1 => any::<u64>().prop_map(|bytes| Request::Chunk { bytes: bytes >> (bytes % 64) }),
        1 => Just(Request::Describe),
        1 => Just(Request::Join),
        1 => Just(Request::Leave),
        1 => identity.prop_map(Request::Fence),
        1 => id.clone().prop_map(|client| Request::Holder { client }),
        1 => (0..2_u16).prop_map(|group| Request::Enlist { group }),
        1 => (0..2_u16).prop_map(|group| Request::FenceGroup { group }),
        1 => (0..2_u64, 0..3_u16).prop_map(|(place, of)| Request::Meet { place, of }),
    ];
    prop_oneof![
        5 => entry.prop_map(Message::Enter),
        10 => (id, request).prop_map(|(caller, request)| Message::Call { caller, request }),
    ]
}

/// The actions of three peers.
#[derive(Clone, Debug)]
enum Step {
    Greet(usize),
    Say(usize, Message),
    Bytes(usize, Vec<u8>),
    Vanish(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = 0..3_usize;
    prop_oneof![
        2 => peer.clone().prop_map(Step::Greet),
        16 => (peer.clone(), said()).prop_map(|(peer, message)| Step::Say(peer, message)),
        1 => (peer.clone(), proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(p, b)| Step::Bytes(p, b)),
        1 => peer.prop_map(Step::Vanish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn any_messages_of_three_peers_leave_the_ledger_whole(steps in proptest::collection::vec(step(), 1..120)) {
        let desk = desk(None);
        let mut peers: Vec<_> = (0..3).map(|_| Dialogue::new(&desk)).collect();
        let mut chunks_end = crate::CHUNK_UNIT;
        for step in steps {
            let (peer, body) = match step {
                Step::Greet(peer) => {
                    if !peers[peer].has_greeted() {
                        peers[peer] = Dialogue::new(&desk);
                        greet(&mut peers[peer], &Secret::default(), &Port::default());
                    }
                    continue;
                }
                Step::Vanish(peer) => {
                    peers[peer] = Dialogue::new(&desk);
                    continue;
                }
                Step::Say(peer, message) => (peer, message.encode()),
                Step::Bytes(peer, bytes) => (peer, bytes),
            };
            let greeted = peers[peer].has_greeted();
            let (said, end) = peers[peer].hear(&body);
            match said {
                Some(Message::Answer(answer)) => {
                    prop_assert!(greeted && end.is_none());
                    if let Answer::Chunk { offset } = answer {
                        // The chunk lies behind all earlier ones, and within the memory.
                        prop_assert!(offset == chunks_end && offset < 1 << 20);
                        chunks_end = desk.ledger.with(|l| l.census(Instant::now())).used;
                    }
                }
                Some(Message::Challenge { .. }) => prop_assert!(!greeted),
                _ => prop_assert!(end.is_some()),
            }
            let census = desk.ledger.with(|l| l.census(Instant::now()));
            prop_assert_eq!(census.connections, peers.iter().filter(|p| p.has_greeted()).count());
            prop_assert!(census.used <= 1 << 20 && census.fenced <= census.clients);
        }
        drop(peers);
        let census = desk.ledger.with(|l| l.census(Instant::now()));
        prop_assert_eq!((census.connections, census.clients), (0, 0));
    }
}
