//! Dialogues without a network: the greeting, and any messages in any order.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ledger::Facts;
use crate::wire::{Entrance, Identity, Token};

/// A device whose queue pairs are numbers. It records how many were opened, and which ones were shut.
#[derive(Default)]
struct Device {
    state: Mutex<(u32, Vec<u32>)>,
}

/// The number of a queue pair.
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
        clients_per_host: 100,
        bytes_per_host: 1 << 20,
    };
    Arc::new(Desk {
        ledger: Mutex::new(Ledger::new(Arc::clone(&fabric), facts)),
        fabric,
        secret: secret.map(|bytes| Secret::new(bytes).unwrap()),
        known_as: vec![at(2)],
        metrics: Metrics::default(),
        strangers_lines: Lines::default(),
        clients_lines: Lines::default(),
        bytes: 1 << 20,
        born: Instant::now(),
    })
}

const SECRET: &[u8] = b"a secret of enough bytes";

fn secret(bytes: &[u8]) -> Secret {
    Secret::new(bytes).unwrap()
}

fn at(last: u8) -> Address {
    SocketAddr::from(([10, 0, 0, last], 7471)).into()
}

/// A client of a dialogue.
struct Caller {
    dialogue: Dialogue<Device>,
    session: Option<Session>,
}

impl Caller {
    fn new(desk: &Arc<Desk<Device>>) -> Self {
        let (peer, here) = (([10, 0, 0, 9], 5000), ([10, 0, 0, 1], 7471));
        Self {
            dialogue: Dialogue::new(desk, peer.into(), here.into()),
            session: None,
        }
    }

    /// Sends a message without an authentication code. Returns the answer, and the reason if the dialogue ends.
    fn say(&mut self, message: &Message) -> (Option<Message>, Option<End>) {
        let (said, end) = self.dialogue.hear(&message.encode());
        (said.map(|body| Message::decode(&body).unwrap()), end)
    }

    /// Greets the node, whose address is `to` for the client. Returns the node's last message, and the reason if the
    /// dialogue ends.
    fn greet(&mut self, secret: Option<&Secret>, to: Address, port: &Port) -> (Option<Message>, Option<End>) {
        let ours = [9; 32];
        let hello = Message::Hello {
            version: VERSION,
            nonce: ours,
        };
        let (Some(Message::Challenge { nonce, .. }), None) = self.say(&hello) else {
            panic!("a greeting is answered by a challenge")
        };
        let greeting = Greeting {
            secret,
            nonces: [ours, nonce],
            to,
            client: port,
        };
        let proof = Message::Proof {
            tag: greeting.proof(),
            to,
            port: port.clone(),
        };
        let (said, end) = self.say(&proof);
        if let Some(Message::Welcome { tag, boot, port }) = &said {
            let welcoming = Welcoming {
                boot: *boot,
                node: port,
            };
            assert!(greeting.welcomes(welcoming, tag));
            self.session = Some(greeting.session(Side::Client, welcoming));
        }
        (said, end)
    }

    /// Sends a message, with its authentication code if the peer has greeted. Returns the answer, and the reason if the
    /// dialogue ends.
    fn call(&mut self, message: &Message) -> (Option<Message>, Option<End>) {
        self.call_bytes(&message.encode())
    }

    fn call_bytes(&mut self, body: &[u8]) -> (Option<Message>, Option<End>) {
        let sealed = match &mut self.session {
            Some(session) => session.seal(body),
            None => body.to_vec(),
        };
        let (said, end) = self.dialogue.hear(&sealed);
        let said = said.map(|said| match &mut self.session {
            Some(session) => Message::decode(session.open(&said).unwrap()).unwrap(),
            None => Message::decode(&said).unwrap(),
        });
        (said, end)
    }
}

#[test]
fn nothing_is_opened_for_whoever_lacks_the_secret() {
    let desk = desk(Some(SECRET));
    let another = secret(b"another one of 16 bytes");
    for wrong in [None, Some(&another)] {
        let mut caller = Caller::new(&desk);
        let (said, end) = caller.greet(wrong, at(1), &Port::default());
        assert_eq!(said, Some(Message::Refuse(Refusal::Secret)));
        assert_eq!(end.unwrap().to_string(), "wrong secret");
        assert!(matches!(
            caller.say(&Message::Enter(Entrance::Claim)),
            (None, Some(End::OutOfTurn))
        ));
    }
    assert_eq!(desk.fabric.state.with(|(opened, _)| *opened), 0);
    let (said, end) = Caller::new(&desk).greet(Some(&secret(SECRET)), at(1), &Port::default());
    assert!(matches!(said, Some(Message::Welcome { boot: 5, .. })) && end.is_none());
}

#[test]
fn a_proof_is_valid_in_one_dialogue_only() {
    let desk = desk(Some(SECRET));
    let secret = secret(SECRET);
    let (mut first, mut second) = (Caller::new(&desk), Caller::new(&desk));
    let hello = Message::Hello {
        version: VERSION,
        nonce: [1; 32],
    };
    let (Some(Message::Challenge { nonce, secret: true }), None) = first.say(&hello) else {
        panic!("a challenge")
    };
    let greeting = Greeting {
        secret: Some(&secret),
        nonces: [[1; 32], nonce],
        to: at(1),
        client: &Port::EMPTY,
    };
    let proof = Message::Proof {
        tag: greeting.proof(),
        to: at(1),
        port: Port::default(),
    };
    // An eavesdropper replays the proof in another dialogue.
    second.say(&hello);
    assert_eq!(second.say(&proof).0, Some(Message::Refuse(Refusal::Secret)));
    assert!(matches!(first.say(&proof).0, Some(Message::Welcome { .. })));
}

#[test]
fn a_client_that_was_led_to_another_node_is_refused() {
    let desk = desk(Some(SECRET));
    let secret = secret(SECRET);
    let greet = |to| Caller::new(&desk).greet(Some(&secret), to, &Port::default()).0;
    assert_eq!(greet(at(3)), Some(Message::Refuse(Refusal::Address)));
    assert_eq!(desk.fabric.state.with(|(opened, _)| *opened), 0);
    for known in [at(1), at(2)] {
        assert!(matches!(greet(known), Some(Message::Welcome { .. })));
    }
    // A peer in between cannot change the address, because the proof covers it.
    let mut led = Caller::new(&desk);
    let hello = Message::Hello {
        version: VERSION,
        nonce: [1; 32],
    };
    let Some(Message::Challenge { nonce, .. }) = led.say(&hello).0 else {
        panic!("a challenge")
    };
    let greeting = Greeting {
        secret: Some(&secret),
        nonces: [[1; 32], nonce],
        to: at(3),
        client: &Port::EMPTY,
    };
    let changed = Message::Proof {
        tag: greeting.proof(),
        to: at(1),
        port: Port::default(),
    };
    assert_eq!(led.say(&changed).0, Some(Message::Refuse(Refusal::Secret)));
}

#[test]
fn other_versions_and_bad_ports_are_told() {
    let desk = desk(None);
    let hello = Message::Hello {
        version: VERSION + 1,
        nonce: [0; 32],
    };
    let (said, _) = Caller::new(&desk).say(&hello);
    assert_eq!(said, Some(Message::Refuse(Refusal::Version(VERSION))));
    let (said, _) = Caller::new(&desk).greet(None, at(1), &Port::new(*b"bad").unwrap());
    assert_eq!(said, Some(Message::Refuse(Refusal::Device)));
}

#[test]
fn the_end_of_a_dialogue_detaches_its_clients() {
    let desk = desk(None);
    let census = || desk.ledger.with(|l| l.census(Instant::now()));
    let mut caller = Caller::new(&desk);
    caller.greet(None, at(1), &Port::default());
    caller.call(&Message::Enter(Entrance::Claim));
    assert_eq!((census().connections, census().clients), (1, 1));
    assert!(caller.dialogue.hear(b"\xffgarbage").1.is_some());
    assert_eq!((census().connections, census().clients), (0, 0));
}

#[test]
fn a_fence_that_the_client_has_not_sent_is_not_obeyed() {
    let desk = desk(Some(SECRET));
    let census = || desk.ledger.with(|l| l.census(Instant::now()));
    let greet = || {
        let mut caller = Caller::new(&desk);
        caller.greet(Some(&secret(SECRET)), at(1), &Port::default());
        let (said, _) = caller.call(&Message::Enter(Entrance::Claim));
        let Some(Message::Answer(Answer::Claimed { client, .. })) = said else {
            panic!("{said:?}")
        };
        (caller, client)
    };
    let (mut victim, _) = greet();
    let fence = |caller, group| Message::Call {
        caller,
        request: Request::FenceGroup { group },
    };
    let enlist = Message::Call {
        caller: 1,
        request: Request::Enlist { group: 7 },
    };
    assert_eq!(victim.call(&enlist).0, Some(Message::Answer(Answer::Done)));
    // Three messages are injected: one without a code, one with a made-up code, and one with the code of another
    // session.
    let (mut foreign, _) = greet();
    for how in 0..3 {
        let (mut caller, client) = greet();
        let body = fence(client, 7).encode();
        let forged = match how {
            0 => body,
            1 => [body, vec![0; 32]].concat(),
            _ => foreign.session.as_mut().unwrap().seal(&body),
        };
        let (said, end) = caller.dialogue.hear(&forged);
        assert!(
            said.is_none() && matches!(end, Some(End::Wire(WireError::Forged))),
            "{end:?}"
        );
    }
    // A message is replayed.
    let (mut caller, client) = greet();
    let session = caller.session.as_mut().unwrap();
    let sent = session.seal(&fence(client, 8).encode());
    assert!(caller.dialogue.hear(&sent).1.is_none());
    assert!(matches!(
        caller.dialogue.hear(&sent).1,
        Some(End::Wire(WireError::Forged))
    ));
    assert_eq!(census().fenced, 0);
    assert!(desk.fabric.state.with(|(_, shut)| shut.is_empty()));
}

/// Draws messages with small numbers, so that they collide. Their tokens may fit the ids of other givers, but not the
/// ids of this node, whose tokens are random.
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

/// An action of one of three peers.
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
        let mut peers: Vec<_> = (0..3).map(|_| Caller::new(&desk)).collect();
        let mut chunks_end = crate::CHUNK_UNIT;
        for step in steps {
            let (peer, body) = match step {
                Step::Greet(peer) => {
                    if !peers[peer].dialogue.has_greeted() {
                        peers[peer] = Caller::new(&desk);
                        peers[peer].greet(None, at(1), &Port::default());
                    }
                    continue;
                }
                Step::Vanish(peer) => {
                    peers[peer] = Caller::new(&desk);
                    continue;
                }
                Step::Say(peer, message) => (peer, message.encode()),
                Step::Bytes(peer, bytes) => (peer, bytes),
            };
            let greeted = peers[peer].dialogue.has_greeted();
            let (said, end) = peers[peer].call_bytes(&body);
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
            prop_assert_eq!(census.connections, peers.iter().filter(|p| p.dialogue.has_greeted()).count());
            prop_assert!(census.used <= 1 << 20 && census.fenced <= census.clients);
        }
        drop(peers);
        let census = desk.ledger.with(|l| l.census(Instant::now()));
        prop_assert_eq!((census.connections, census.clients), (0, 0));
    }
}
