//! Tests of a node on real sockets: its services, hostile peers, and its log.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use dm_control::{
    Address, Answer, Builder, Client, ClientError, DEFAULT_PATIENCE, Entrance, Fabric, Identity, Limits,
    Message, Port, Ports, Refusal, Request, Secret, Server, StartError, VERSION, WireError,
};

/// A device whose queue pairs are numbers. It records how many were opened, and which ones were shut.
#[derive(Default)]
struct Device(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    opened: u32,
    shut: Vec<u32>,
}

impl Ports for Device {
    type Port = u32;
    fn shut(&self, port: &u32) -> io::Result<()> {
        self.0.lock().unwrap().shut.push(*port);
        Ok(())
    }
}

impl Fabric for Device {
    fn open(&self, theirs: &Port) -> io::Result<(u32, Port)> {
        let mut seen = self.0.lock().unwrap();
        seen.opened += 1;
        Ok((seen.opened, theirs.clone()))
    }
}

/// Returns the log of this process.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<&'static Mutex<Vec<u8>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log: &'static Mutex<Vec<u8>> = Box::leak(Box::default());
        struct To(&'static Mutex<Vec<u8>>);
        impl Write for To {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || To(log))
            .init();
        log
    })
}

/// Waits up to 10 s for a log line about `peer` that contains `words`, and returns whether there was one.
fn is_logged(peer: SocketAddr, words: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
        if text
            .lines()
            .any(|line| line.contains(&format!("peer={peer}")) && line.contains(words))
        {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

const SECRET: &[u8] = b"correct horse battery staple";

fn secret() -> Secret {
    Secret::new(SECRET).unwrap()
}

fn quick() -> Limits {
    let mut limits = Limits::default();
    limits.greeting = Duration::from_millis(300);
    limits.message = Duration::from_millis(300);
    limits
}

fn serve(builder: Builder) -> Server<Device> {
    log();
    builder.start(Device::default()).unwrap()
}

fn connect(node: &Server<Device>) -> Client {
    let (client, welcomed) = Client::connect(
        node.address(),
        Some(&secret()),
        &Port::new(*b"mine").unwrap(),
        DEFAULT_PATIENCE,
    )
    .unwrap();
    assert_eq!(welcomed.port.bytes(), b"mine");
    client
}

fn claim(client: &mut Client) -> u16 {
    match client.enter(Entrance::Claim) {
        Ok(Answer::Claimed { client, .. }) => client,
        other => panic!("{other:?}"),
    }
}

/// Reads until the node ends the connection.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // The node had unread bytes of this peer.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the connection was not ended: {e}"),
    }
    bytes
}

fn hello() -> Vec<u8> {
    frame(&Message::Hello {
        version: VERSION,
        nonce: [3; 32],
    })
}

fn frame(message: &Message) -> Vec<u8> {
    let body = message.encode();
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Returns the number of bytes that a client sends in a greeting.
fn greeting_bytes() -> usize {
    let proof = Message::Proof {
        tag: [0; 32],
        to: address(1),
        port: Port::new(*b"mine").unwrap(),
    };
    hello().len() + frame(&proof).len()
}

fn address(port: u16) -> Address {
    SocketAddr::from(([127, 0, 0, 1], port)).into()
}

/// Starts a node that clients may reach through a proxy. Also returns the listener of this proxy.
fn serve_through_proxy(limits: Limits) -> (Server<Device>, std::net::TcpListener) {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = Builder::new(1 << 20).secret(secret()).limits(limits);
    (serve(builder.known_as(proxy.local_addr().unwrap())), proxy)
}

/// Connects a client through a proxy; `pass` copies the client's bytes to the node. Also returns the address that the
/// node sees.
fn through(
    node: &Server<Device>,
    proxy: &std::net::TcpListener,
    pass: impl FnOnce(TcpStream, TcpStream) + Send + 'static,
) -> (SocketAddr, Client) {
    let between = proxy.local_addr().unwrap();
    let (far, own) = stranger(node);
    let proxy = proxy.try_clone().unwrap();
    std::thread::spawn(move || {
        let (near, _) = proxy.accept().unwrap();
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        pass(near, far);
    });
    let made = Client::connect(
        between,
        Some(&secret()),
        &Port::new(*b"mine").unwrap(),
        DEFAULT_PATIENCE,
    );
    (own, made.unwrap().0)
}

/// Copies this number of bytes from `near` to `far`.
fn pass(near: &mut TcpStream, far: &mut TcpStream, bytes: usize) {
    let passed = io::copy(&mut near.take(bytes as u64), far).unwrap();
    assert_eq!(passed, bytes as u64);
}

/// Returns a function that copies the greeting and 3 more bytes. It then closes the connection to the node: at once if
/// `goes_away`, otherwise after the node has ended it.
fn gap(goes_away: bool) -> impl FnOnce(TcpStream, TcpStream) {
    move |mut near, mut far| {
        pass(&mut near, &mut far, greeting_bytes() + 3);
        if !goes_away {
            rest(&far);
        }
        let _ = far.shutdown(std::net::Shutdown::Both);
    }
}

fn stranger(node: &Server<Device>) -> (TcpStream, SocketAddr) {
    let stream = TcpStream::connect(node.address()).unwrap();
    let own = stream.local_addr().unwrap();
    (stream, own)
}

#[test]
fn other_addresses_than_loopback_need_a_secret() {
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Builder::new(1 << 20).listen(anywhere).start(Device::default());
    assert!(matches!(refused, Err(StartError::SecretNeeded { address }) if address == anywhere));
    let node = serve(Builder::new(1 << 20).listen(anywhere).secret(secret()));
    let address = SocketAddr::from(([127, 0, 0, 1], node.address().port()));
    let made = Client::connect(address, Some(&secret()), &Port::default(), DEFAULT_PATIENCE);
    assert_eq!(claim(&mut made.unwrap().0), 1);
    assert!(serve(Builder::new(1 << 20)).address().ip().is_loopback());
}

#[test]
fn a_client_without_the_secret_is_refused_and_logged() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let other = Secret::new(b"not the secret of this node").unwrap();
    let ask = |secret| Client::connect(node.address(), secret, &Port::default(), DEFAULT_PATIENCE);
    assert!(matches!(ask(None), Err(ClientError::SecretNeeded)));
    assert!(matches!(
        ask(Some(&other)),
        Err(ClientError::Refused(Refusal::Secret))
    ));
    // The test connects the socket itself, so that it knows the peer's address.
    let (mut stream, own) = stranger(&node);
    stream.write_all(&hello()).unwrap();
    let proof = Message::Proof {
        tag: [7; 32],
        to: node.address().into(),
        port: Port::default(),
    };
    stream.write_all(&frame(&proof)).unwrap();
    let said = rest(&stream);
    assert!(said.ends_with(&frame(&Message::Refuse(Refusal::Secret))));
    assert!(is_logged(own, "wrong secret"));
    assert_eq!(node.fabric().0.lock().unwrap().opened, 0);
    assert!(
        node.metrics().contains("dmkit_node_wrong_secret_total 2"),
        "{}",
        node.metrics()
    );
    assert!(!String::from_utf8_lossy(&log().lock().unwrap()).contains("horse"));
}

#[test]
fn a_client_with_a_secret_takes_no_node_without_it() {
    let node = serve(Builder::new(1 << 20));
    let asked = Client::connect(
        node.address(),
        Some(&secret()),
        &Port::default(),
        DEFAULT_PATIENCE,
    );
    assert!(matches!(asked, Err(ClientError::Impostor)), "{asked:?}");
    // This server sends a challenge and a made-up welcome, whatever the client sends.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let challenge = Message::Challenge {
            nonce: [1; 32],
            secret: true,
        };
        stream.write_all(&frame(&challenge)).unwrap();
        let welcome = Message::Welcome {
            tag: [1; 32],
            boot: 1,
            port: Port::default(),
        };
        stream.write_all(&frame(&welcome)).unwrap();
        rest(&stream)
    });
    let asked = Client::connect(address, Some(&secret()), &Port::default(), DEFAULT_PATIENCE);
    assert!(matches!(asked, Err(ClientError::Impostor)), "{asked:?}");
    let heard = impostor.join().unwrap();
    assert!(
        !heard.windows(5).any(|bytes| bytes == b"horse"),
        "the secret was sent"
    );
}

#[test]
fn stalls_garbage_and_disconnects_harm_nobody_and_are_logged() {
    let (node, proxy) = serve_through_proxy(quick());
    let mut good = connect(&node);
    let id = claim(&mut good);
    let began = Instant::now();
    let stall = |bytes: &[u8]| {
        let (mut stream, own) = stranger(&node);
        stream.write_all(bytes).unwrap();
        (stream, own)
    };
    let hello = hello();
    // These peers send nothing, a part of a length, a part of a hello, or a hello without a proof.
    let stalled = [stall(b""), stall(&hello[..2]), stall(&hello[..20]), stall(&hello)];
    let garbage = [
        stall(b"GET / HTTP/1.1\r\n\r\n"),
        stall(&[255; 64]),
        stall(&[0; 8]),
        stall(&[1, 0, 0, 0, 99]),
    ];
    let cut: Vec<_> = [1, 4, 20, hello.len() - 1].map(|n| stall(&hello[..n]).1).into();
    for (stream, own) in &stalled {
        rest(stream);
        assert!(is_logged(*own, "stalled"), "{own}");
    }
    for (stream, own) in &garbage {
        rest(stream);
        assert!(is_logged(*own, "a message"), "{own}");
    }
    for own in cut {
        assert!(is_logged(own, "connection ended"), "{own}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "each ends after 0.3 s");
    // After the greeting, in the middle of a request: one peer stalls, another one disconnects.
    for (goes_away, words) in [(false, "stalled"), (true, "connection ended")] {
        let (own, mut victim) = through(&node, &proxy, gap(goes_away));
        assert!(victim.enter(Entrance::Claim).is_err());
        assert!(is_logged(own, words), "{own}");
    }
    assert!(matches!(
        good.call(id, Request::Chunk { bytes: 1 }),
        Ok(Answer::Chunk { offset: 4096 })
    ));
    let metrics = node.metrics();
    assert!(metrics.contains("dmkit_node_broken_total 14"), "{metrics}");
}

#[test]
fn changed_repeated_and_redirected_messages_are_refused() {
    let (node, proxy) = serve_through_proxy(Limits::default());
    // The proxy sends the client's first message after the greeting twice.
    let (own, mut client) = through(&node, &proxy, |mut near, mut far| {
        pass(&mut near, &mut far, greeting_bytes());
        let mut bytes = [0; 256];
        let got = near.read(&mut bytes).unwrap();
        far.write_all(&bytes[..got].repeat(2)).unwrap();
    });
    let _ = client.enter(Entrance::Claim);
    assert!(is_logged(own, "changed, repeated or made up"));
    wait_for(&node, "dmkit_node_connections 0\n");
    let metrics = node.metrics();
    assert!(metrics.contains("dmkit_node_requests_total 1\n"), "{metrics}");
    // The proxy changes one bit in the first message after the greeting.
    let (own, mut client) = through(&node, &proxy, |mut near, mut far| {
        pass(&mut near, &mut far, greeting_bytes() + 4);
        let mut tag = [0];
        near.read_exact(&mut tag).unwrap();
        far.write_all(&[tag[0] ^ 1]).unwrap();
        let _ = io::copy(&mut near, &mut far);
    });
    assert!(client.enter(Entrance::Claim).is_err());
    assert!(is_logged(own, "changed, repeated or made up"));
    // The proxy passes a client to another node with the same secret.
    let other = serve(Builder::new(1 << 20).secret(secret()));
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, to) = (relay.local_addr().unwrap(), other.address());
    std::thread::spawn(move || {
        let (mut near, mut far) = (relay.accept().unwrap().0, TcpStream::connect(to).unwrap());
        let (mut from, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut from, &mut back));
        let _ = io::copy(&mut near, &mut far);
    });
    let led = Client::connect(between, Some(&secret()), &Port::default(), DEFAULT_PATIENCE);
    assert!(
        matches!(led, Err(ClientError::Refused(Refusal::Address))),
        "{led:?}"
    );
    assert_eq!(other.fabric().0.lock().unwrap().opened, 0);
}

#[test]
fn a_client_rejects_forged_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let node = serve(
        Builder::new(1 << 20)
            .secret(secret())
            .known_as(listener.local_addr().unwrap()),
    );
    let (far, _) = stranger(&node);
    let between = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut from, &mut to));
        // The node's challenge and its welcome are passed on, and its first answer is changed.
        for changed in [false, false, true] {
            let mut length = [0; 4];
            (&far).read_exact(&mut length).unwrap();
            let mut body = vec![0; u32::from_le_bytes(length) as usize];
            (&far).read_exact(&mut body).unwrap();
            body[1] ^= u8::from(changed);
            (&near).write_all(&length).unwrap();
            (&near).write_all(&body).unwrap();
        }
    });
    let made = Client::connect(between, Some(&secret()), &Port::default(), DEFAULT_PATIENCE);
    let mut client = made.unwrap().0;
    let answer = client.enter(Entrance::Claim);
    assert!(
        matches!(answer, Err(ClientError::Wire(WireError::Forged))),
        "{answer:?}"
    );
}

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "only Linux has all addresses of 127.0.0.0/8"
)]
fn wrong_proofs_are_answered_later_and_later_and_only_to_their_host() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let guess = || {
        let mut stream = stranger_from([127, 0, 0, 9], &node);
        stream.write_all(&hello()).unwrap();
        let proof = Message::Proof {
            tag: [7; 32],
            to: node.address().into(),
            port: Port::default(),
        };
        let began = Instant::now();
        stream.write_all(&frame(&proof)).unwrap();
        assert!(rest(&stream).ends_with(&frame(&Message::Refuse(Refusal::Secret))));
        began.elapsed()
    };
    let times: Vec<_> = (0..9).map(|_| guess()).collect();
    // The delays are at least 8, 16, 32, 64 and 128 ms.
    for (time, least) in times[4..].iter().zip([8, 16, 32, 64, 128]) {
        assert!(*time >= Duration::from_millis(least), "{times:?}");
    }
    claim(&mut connect(&node));
}

#[test]
fn a_weak_secret_is_named_in_the_log() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    assert!(text.contains("the secret is weak"), "{}", node.address());
}

#[test]
fn a_crowd_of_strangers_leaves_room_for_others() {
    let mut limits = quick();
    limits.strangers_per_host = 4;
    let node = serve(Builder::new(1 << 20).limits(limits));
    let crowd: Vec<_> = (0..20).map(|_| stranger(&node)).collect();
    let busy = crowd.iter().filter(|(stream, own)| {
        let said = rest(stream);
        let refused = said == frame(&Message::Refuse(Refusal::Busy));
        assert!(!refused || is_logged(*own, "too many connections"));
        refused
    });
    assert!(busy.count() >= 10);
    // A client that connects meanwhile retries until there is room.
    let (mut client, _) = Client::connect(node.address(), None, &Port::default(), DEFAULT_PATIENCE).unwrap();
    claim(&mut client);
}

/// Connects from another address of this machine.
fn stranger_from(host: [u8; 4], node: &Server<Device>) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
    socket.connect(&node.address().into()).unwrap();
    socket.into()
}

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "only Linux has all addresses of 127.0.0.0/8"
)]
fn slow_strangers_of_two_hosts_keep_nobody_out() {
    let mut limits = Limits::default();
    // With these limits, no connection ends because it is slow.
    limits.greeting = Duration::from_secs(600);
    let node = serve(Builder::new(1 << 20).secret(secret()).limits(limits));
    let hello = hello();
    let slow: Vec<_> = (0..200)
        .map(|n| {
            let mut stream = stranger_from([127, 0, 0, 2 + n % 2], &node);
            let _ = stream.write_all(&hello[..usize::from(n) % hello.len()]);
            stream
        })
        .collect();
    let honest: Vec<_> = (0..9).map(|_| connect(&node)).collect();
    // An honest peer with the address of the slow peers also gets a connection.
    let mut own = stranger_from([127, 0, 0, 2], &node);
    own.write_all(&hello).unwrap();
    let mut challenge = [0; 4];
    own.read_exact(&mut challenge).unwrap();
    assert_eq!(u32::from_le_bytes(challenge), 34);
    assert_eq!((slow.len(), honest.len()), (200, 9));
}

#[test]
fn bad_connections_can_not_fill_the_log() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let addresses: Vec<_> = (0..300)
        .map(|_| {
            let (mut stream, own) = stranger(&node);
            let _ = stream.write_all(&[255; 8]);
            rest(&stream);
            own
        })
        .collect();
    wait_for(&node, "dmkit_node_broken_total 300\n");
    let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    let about = |own: &SocketAddr| text.contains(&format!("peer={own} "));
    let lines = addresses.iter().filter(|own| about(own)).count();
    // If the machine is slow, this takes two windows.
    assert!((1..=200).contains(&lines), "{lines}");
}

/// Waits until the node's metrics contain `words`.
fn wait_for(node: &Server<Device>, words: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !node.metrics().contains(words) {
        assert!(Instant::now() < deadline, "{}", node.metrics());
        std::thread::yield_now();
    }
}

#[test]
fn a_fence_shuts_queue_pairs_before_it_is_answered_and_death_gives_ids_back() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let (mut doomed, mut judge) = (connect(&node), connect(&node));
    let (id, own) = (claim(&mut doomed), claim(&mut judge));
    assert_eq!(
        doomed.call(id, Request::Enlist { group: 3 }).unwrap(),
        Answer::Done
    );
    let nobody = Identity {
        client: 999,
        epoch: 0,
        giver: 0,
    };
    assert_eq!(
        judge.call(own, Request::Fence(nobody)).unwrap(),
        Answer::NoSuchClient
    );
    assert_eq!(
        judge.call(own, Request::FenceGroup { group: 3 }).unwrap(),
        Answer::Done
    );
    assert_eq!(node.fabric().0.lock().unwrap().shut, [1]);
    assert_eq!(doomed.call(id, Request::Join).unwrap(), Answer::Fenced);
    drop(doomed);
    wait_for(&node, "dmkit_node_clients 1\n");
}

#[test]
fn a_host_gets_its_part_of_the_memory_and_no_more() {
    let left = |builder: Builder| {
        let node = serve(builder.secret(secret()));
        let (mut one, mut other) = (connect(&node), connect(&node));
        let id = claim(&mut one);
        let all = Request::Chunk { bytes: 1 << 19 };
        assert_eq!(one.call(id, all).unwrap(), Answer::Chunk { offset: 4096 });
        let id = claim(&mut other);
        other.call(id, all).unwrap()
    };
    let sixteenth = 1 << 16;
    assert_eq!(
        left(Builder::new(1 << 20)),
        Answer::OutOfMemory {
            left: (1 << 19) - sixteenth
        }
    );
    let mut limits = Limits::default();
    limits.bytes_per_host = Some(1 << 19);
    let own = Builder::new(1 << 20).limits(limits);
    assert_eq!(left(own), Answer::OutOfMemory { left: 0 });
}

#[test]
fn machines_meet() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let [(mut early, e), (mut late, l)] = [(), ()].map(|()| {
        let mut client = connect(&node);
        let id = claim(&mut client);
        (client, id)
    });
    assert!(!early.meet(e, 5, 2, Duration::from_millis(20)).unwrap());
    let waiting = std::thread::spawn(move || early.meet(e, 5, 2, Duration::from_secs(10)).unwrap());
    assert!(late.meet(l, 5, 2, Duration::from_secs(10)).unwrap());
    assert!(waiting.join().unwrap());
}

#[test]
fn a_silent_node_is_given_up_and_never_asked_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let began = Instant::now();
    let patience = Duration::from_millis(200);
    let silent = Client::connect(address, None, &Port::default(), patience).unwrap_err();
    assert_eq!(silent.to_string(), "no answer in time");
    assert!(began.elapsed() < Duration::from_secs(5));
    // The node stops while a client is connected.
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let mut client = connect(&node);
    drop(node);
    assert!(client.call(0, Request::Describe).is_err());
    assert!(matches!(
        client.call(0, Request::Describe),
        Err(ClientError::Broken)
    ));
}

#[test]
fn metrics_are_told_over_http_whatever_else_comes_there() {
    let node = serve(Builder::new(1 << 20).metrics(([127, 0, 0, 1], 0).into()));
    let address = node.metrics_address().unwrap();
    let ask = |request: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        String::from_utf8(rest(&stream)).unwrap()
    };
    let page = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("# TYPE dmkit_node_memory_bytes gauge\ndmkit_node_memory_bytes 1048576\n"));
    assert!(ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert_eq!(ask(&[b'x'; 5000]), "");
    // Scrapers that send no request delay nobody, however many there are.
    let began = Instant::now();
    let idle: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(ask(b"GET /metrics HTTP/1.0\r\n\r\n").contains("200 OK"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(idle);
}

#[test]
fn a_stopped_node_leaves_no_connection() {
    let node = serve(Builder::new(1 << 20).secret(secret()));
    let clients: Vec<_> = (0..10).map(|_| connect(&node)).collect();
    let (silent, _) = stranger(&node);
    let began = Instant::now();
    drop(node);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(rest(&silent), b"");
    for mut client in clients {
        assert!(client.call(0, Request::Describe).is_err());
    }
}
