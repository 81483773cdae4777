//! Attacks a node in its own process with many hostile peers, while an honest client works.
//!
//! The hostile peers send changed messages, garbage and replays, hold connections, flood the node, send wrong proofs
//! and misuse the secret. After the attack, the node's memory and descriptors must be free again.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::process::{Node, Raw, frame, secret};
use dm_control::{Answer, BODY_MAX, Client, Entrance, Identity, Message, Port, Request, Secret, Token};
use dm_sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Time that an honest client may need. The usual time is milliseconds, but other programs may use the machine too.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time within which 99 of 100 requests of the honest client are answered.
const SERVED: Duration = Duration::from_secs(1);

#[test]
fn a_hostile_crowd_disturbs_nobody() {
    storm(Duration::from_secs(2), 100);
}

#[test]
#[ignore = "takes a minute: `cargo xtask hostile`"]
fn full_a_hostile_crowd_disturbs_nobody() {
    storm(Duration::from_secs(60), 100_000);
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// Changes a frame: flips bits, removes or inserts bytes, cuts the frame, or doubles it. A change may be in the
    /// frame's length.
    fn change(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(frame.len().max(1)).min(frame.len().saturating_sub(1));
            match self.below(6) {
                0 | 1 if !frame.is_empty() => frame[at] ^= 1 << self.below(8),
                2 if !frame.is_empty() => drop(frame.remove(at)),
                3 => frame.insert(at, self.next() as u8),
                4 => frame.truncate(at),
                5 if frame.len() < 4000 => frame.extend(frame.clone()),
                _ => {}
            }
        }
    }
}

/// The state that the threads of the attack share.
struct Crowd<'a> {
    node: &'a Node,
    over: AtomicBool,
    /// Changed frames that were sent.
    changed: AtomicU64,
    /// Requests of hostile holders of the secret that the node has answered.
    misused: AtomicU64,
    /// The honest client. The hostile peers try to take over its id.
    honest: Identity,
}

impl Crowd<'_> {
    fn is_over(&self) -> bool {
        // Relaxed: nothing else depends on the flag.
        self.over.load(Relaxed)
    }

    /// Repeats an attack from random addresses. Errors are expected, because the node ends such connections.
    fn repeat(&self, seed: u64, mut attack: impl FnMut(&mut Random, Ipv4Addr) -> io::Result<()>) {
        let mut random = Random(seed);
        while !self.is_over() {
            // Use many hosts, because a host that sends wrong proofs must wait.
            let host = Ipv4Addr::new(127, seed as u8, random.next() as u8, random.next() as u8);
            let _ = attack(&mut random, host);
        }
    }

    /// Sends changed messages: before a greeting, in a greeting, and in a session with a wrong and with a right code.
    fn changes(&self, seed: u64) {
        let any = any_message(self.honest);
        self.repeat(seed, |random, host| {
            let mut raw = Raw::connect(host, self.node.address)?;
            let body = any(random).encode();
            let mut bytes = match random.below(8) {
                0..4 => frame(&body),
                4 | 5 => {
                    let nonces = raw.hello()?;
                    frame(&raw.proof(&secret(), nonces))
                }
                how => {
                    let Some(mut session) = raw.greet(&secret())? else {
                        return Ok(());
                    };
                    let mut changed = body;
                    match how {
                        6 => frame(&session.seal(&changed)),
                        _ => {
                            random.change(&mut changed);
                            changed.truncate(BODY_MAX - 32);
                            raw.send(&session.seal(&changed))?;
                            self.changed.fetch_add(1, Relaxed);
                            return Ok(());
                        }
                    }
                }
            };
            random.change(&mut bytes);
            raw.stream.write_all(&bytes)?;
            self.changed.fetch_add(1, Relaxed);
            // Most connections are closed at once. One in a hundred first reads until the node ends it or is silent for
            // 50 ms.
            if random.below(100) == 0 {
                raw.stream.set_read_timeout(Some(Duration::from_millis(50)))?;
                raw.is_ended();
            }
            Ok(())
        });
    }

    /// Replays messages: a proof in another greeting, and a request in the same session.
    fn replays(&self, seed: u64) {
        let mut recorded: Option<Vec<u8>> = None;
        self.repeat(seed, |random, host| {
            let mut raw = Raw::connect(host, self.node.address)?;
            if random.below(2) == 0 {
                let nonces = raw.hello()?;
                let proof = raw.proof(&secret(), nonces);
                if let Some(earlier) = recorded.replace(proof) {
                    raw.send(&earlier)?;
                    let said = Message::decode(&raw.receive()?);
                    assert!(
                        !matches!(said, Ok(Message::Welcome { .. })),
                        "a proof was good twice"
                    );
                }
                return Ok(());
            }
            let Some(mut session) = raw.greet(&secret())? else {
                return Ok(());
            };
            let sealed = session.seal(&Message::Enter(Entrance::Claim).encode());
            raw.send(&sealed)?;
            session.open(&raw.receive()?).expect("the node's own answer");
            raw.send(&sealed)?;
            assert!(raw.receive().is_err(), "a message was obeyed twice");
            Ok(())
        });
    }

    /// Holds hundreds of connections that send nothing or an incomplete message.
    fn holds(&self, seed: u64) {
        let mut held = std::collections::VecDeque::new();
        self.repeat(seed, |random, host| {
            let mut raw = Raw::connect(host, self.node.address)?;
            let part = random.below(20);
            raw.stream.write_all(&frame(&[1; 42])[..part])?;
            held.push_back(raw);
            if held.len() > 400 {
                held.pop_front();
            }
            Ok(())
        });
    }

    /// Guesses the secret.
    fn guesses(&self, seed: u64) {
        let wrong = Secret::new(b"not the secret of this node").unwrap();
        self.repeat(seed, |random, _| {
            let host = Ipv4Addr::new(127, seed as u8, 0, 1 + random.below(3) as u8);
            let mut raw = Raw::connect(host, self.node.address)?;
            let welcomed = raw.greet(&wrong)?.is_some();
            assert!(!welcomed, "a wrong proof was good");
            Ok(())
        });
    }

    /// Holds connections to the metrics page, and sends garbage on them.
    fn scrapes(&self, seed: u64) {
        let mut held = std::collections::VecDeque::new();
        self.repeat(seed, |random, host| {
            let mut raw = Raw::connect(host, self.node.page)?;
            raw.stream.write_all(&{
                let count = random.below(600);
                random.bytes(count)
            })?;
            held.push_back(raw);
            if held.len() > 50 {
                held.pop_front();
            }
            Ok(())
        });
    }

    /// Uses the secret to send nearly all kinds of requests, as fast as possible and on behalf of any client.
    fn misuses(&self, seed: u64) {
        let any = any_message(self.honest);
        self.repeat(seed, |random, _| {
            let host = Ipv4Addr::new(127, seed as u8, 0, 1 + random.below(2) as u8);
            let mut raw = Raw::connect(host, self.node.address)?;
            let Some(mut session) = raw.greet(&secret())? else {
                return Ok(());
            };
            for _ in 0..random.below(3000) {
                let message = any(random);
                raw.send(&session.seal(&message.encode()))?;
                let answer = Message::decode(session.open(&raw.receive()?).unwrap());
                self.misused.fetch_add(1, Relaxed);
                if let Message::Enter(Entrance::Attach { identity, .. }) = message
                    && identity == self.honest
                {
                    let done = Ok(Message::Answer(Answer::Done));
                    assert_ne!(answer, done, "the honest client was taken over");
                }
                if self.is_over() {
                    break;
                }
            }
            Ok(())
        });
    }
}

/// Returns a generator of entrances and requests. None of them fences the honest client, because any holder of the
/// secret may do that.
fn any_message(honest: Identity) -> impl Fn(&mut Random) -> Message {
    move |random: &mut Random| {
        let identity = match random.below(3) {
            0 => honest,
            _ => Identity {
                client: random.below(5000) as u16,
                epoch: random.below(4) as u32,
                giver: honest.giver.wrapping_add(random.below(12) as u64),
            },
        };
        let token = Token([random.next() as u8; 16]);
        let request = match random.below(9) {
            0 => Request::Release,
            1 => Request::Chunk {
                bytes: random.next() >> random.below(64),
            },
            2 => Request::Join,
            3 => Request::Enlist { group: 1 },
            4 => Request::FenceGroup {
                group: 1 + random.below(2) as u16,
            },
            5 if identity.client != honest.client => Request::Fence(identity),
            6 => Request::Meet {
                place: random.next(),
                of: random.next() as u16,
            },
            7 => Request::Holder {
                client: identity.client,
            },
            _ => Request::Describe,
        };
        match random.below(4) {
            0 => Message::Enter(Entrance::Claim),
            1 => Message::Enter(Entrance::Attach { identity, token }),
            _ => Message::Call {
                caller: random.below(64) as u16,
                request,
            },
        }
    }
}

/// The times that requests of the honest client took.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn measure<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = what();
        self.0.push(began.elapsed());
        done
    }
}

fn claim(client: &mut Client) -> (u16, u32, Token) {
    match client.enter(Entrance::Claim) {
        Ok(Answer::Claimed { client, epoch, token }) => (client, epoch, token),
        other => panic!("an honest client got {other:?}"),
    }
}

/// Reads the metrics page. If another scraper displaces this one, tries again, as Prometheus does.
fn page(node: &Node) -> String {
    let began = Instant::now();
    loop {
        match read_page(node) {
            Ok(text) if text.starts_with("HTTP/1.1 200 OK") => return text,
            other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
        }
    }
}

fn read_page(node: &Node) -> io::Result<String> {
    let mut stream = TcpStream::connect(node.page)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Runs the attack for at least `length`, and until the peers have sent `changes` changed frames. Then checks that the
/// honest client was served in time, and that the node has given back its memory, descriptors and threads.
fn storm(length: Duration, changes: u64) {
    let log = std::env::temp_dir().join(format!("dm-control-hostile-{}-{changes}", std::process::id()));
    let node = Node::start(1024, Stdio::from(std::fs::File::create(&log).unwrap()));
    let made = Client::connect(node.address, Some(&secret()), &Port::default(), PATIENCE);
    let (mut stays, welcomed) = made.unwrap();
    let (id, epoch, token) = claim(&mut stays);
    let honest = Identity {
        client: id,
        epoch,
        giver: welcomed.boot,
    };
    let (descriptors, threads) = (node.count("fd"), node.count("task"));
    page(&node);
    let crowd = Crowd {
        node: &node,
        over: AtomicBool::new(false),
        changed: AtomicU64::new(0),
        misused: AtomicU64::new(0),
        honest,
    };
    let began = Instant::now();
    let mut times = Times::default();
    let mut halfway = 0;
    std::thread::scope(|scope| {
        let crowd = &crowd;
        scope.spawn(move || crowd.changes(1));
        scope.spawn(move || crowd.changes(2));
        scope.spawn(move || crowd.replays(3));
        scope.spawn(move || crowd.holds(4));
        scope.spawn(move || crowd.guesses(5));
        scope.spawn(move || crowd.scrapes(6));
        scope.spawn(move || crowd.misuses(7));
        // The crowd must end even if the honest client fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _ends = Ends(&crowd.over);
        while began.elapsed() < length || crowd.changed.load(Relaxed) < changes {
            // One honest client stays connected. Another one connects for a few requests each time.
            let joined = times.measure(|| stays.call(id, Request::Join)).unwrap();
            assert!(matches!(joined, Answer::Joined { epoch: same, .. } if same == epoch));
            times.measure(|| {
                let mut client = node.connect(PATIENCE);
                let (id, ..) = claim(&mut client);
                let chunk = client.call(id, Request::Describe).unwrap();
                assert!(matches!(chunk, Answer::Region { .. }), "{chunk:?}");
                assert_eq!(client.call(id, Request::Release).unwrap(), Answer::Done);
            });
            if halfway == 0 && began.elapsed() > length / 2 {
                times.measure(|| page(&node));
                halfway = node.resident_bytes();
            }
        }
    });
    let took = began.elapsed();
    let Times(mut times) = times;
    times.sort();
    let (count, late) = (times.len(), times.iter().filter(|time| **time > SERVED).count());
    let left = settled(&node, descriptors);
    let resident = node.resident_bytes();
    eprintln!(
        "{} changed frames and {} answers to misuse in {took:?}; {count} honest requests: median {:?}, last {:?}, \
         {late} late; {halfway} bytes halfway, {resident} in the end; {left} of {descriptors} descriptors",
        crowd.changed.load(Relaxed),
        crowd.misused.load(Relaxed),
        times[count / 2],
        times[count - 1],
    );
    assert!(count >= 20 && crowd.misused.load(Relaxed) > 0);
    assert!(
        times[count - 1] < PATIENCE && late * 100 <= count,
        "{late} of {count} were late"
    );
    assert_eq!((left, node.count("task")), (descriptors, threads));
    assert!(
        // In the end, the node uses at most 8 MiB more than halfway through the attack, so its memory does not grow
        // with the attack.
        resident < halfway + (8 << 20),
        "{halfway} bytes halfway, {resident} now"
    );
    assert!(resident < 64 << 20, "{resident} bytes");
    // The honest client is still the holder of its id, and can move to another connection with its token.
    let mut moved = node.connect(PATIENCE);
    let attach = Entrance::Attach {
        identity: honest,
        token,
    };
    assert_eq!(moved.enter(attach).unwrap(), Answer::Done);
    assert!(matches!(moved.call(id, Request::Join), Ok(Answer::Joined { .. })));
    let lines = std::fs::read_to_string(&log).unwrap().lines().count() as u64;
    // The log has at most 100 lines, and one about lines left out, per window of 10 s, for strangers and for clients.
    let windows = took.as_secs() / 10 + 2;
    assert!(lines <= windows * 202 + 10, "{lines} lines in {took:?}");
    let _ = std::fs::remove_file(&log);
}

/// Waits until the node has no more than `before` descriptors open, at most for a minute. Returns their number.
fn settled(node: &Node, before: usize) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = node.count("fd");
        if now <= before || Instant::now() > deadline {
            return now;
        }
        std::thread::yield_now();
    }
}
