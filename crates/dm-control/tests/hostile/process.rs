//! A node in its own process, and peers that write their messages by hand.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use dm_control::{
    BODY_MAX, Builder, Client, Fabric, Greeting, Message, Nonce, Port, Ports, Secret, Session, Side, VERSION,
    Welcoming,
};

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

/// The environment variable that makes a process run the node.
const NODE: &str = "DM_CONTROL_TEST_NODE";

pub(crate) fn secret() -> Secret {
    Secret::new(b"53c7f0b4a1d26e98d3b05f7c8e6a9d14").unwrap()
}

/// The node's process runs only this test.
#[test]
fn a_node() {
    if std::env::var_os(NODE).is_none() {
        return;
    }
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
    let page = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let builder = Builder::new(1 << 30).secret(secret()).metrics(page);
    let node = builder.start(Device).unwrap();
    let page = node.metrics_address().unwrap();
    writeln!(io::stdout(), "node at {} {page}", node.address()).unwrap();
    // The pipe is closed when the parent process ends.
    let _ = io::stdin().read_line(&mut String::new());
}

/// A node as a process of its own.
pub(crate) struct Node {
    child: Child,
    /// Keeps the pipe open: the test harness of the node's process fails if it cannot print.
    _said: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    pub(crate) page: SocketAddr,
}

impl Node {
    /// Starts this program again as a node, with at most `descriptors` descriptors. The node's log goes to `log`.
    pub(crate) fn start(descriptors: u32, log: Stdio) -> Self {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {descriptors}; exec \"$0\" --exact process::a_node --nocapture");
        command
            .arg("-c")
            .arg(limited)
            .arg(std::env::current_exe().unwrap());
        command
            .env(NODE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addresses = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, words) = line.split_once("node at ")?;
            let (address, page) = words.split_once(' ')?;
            Some((address.parse().unwrap(), page.parse().unwrap()))
        });
        let (address, page) = addresses.expect("the node says where it is");
        Self {
            child,
            _said: lines,
            address,
            page,
        }
    }

    /// Counts the entries of the directory `of` of the process in `/proc`.
    pub(crate) fn count(&self, of: &str) -> usize {
        let path = format!("/proc/{}/{of}", self.child.id());
        std::fs::read_dir(path).unwrap().count()
    }

    /// Returns the bytes of memory that the process has in use.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let mut text = String::new();
        let status = File::open(format!("/proc/{}/status", self.child.id()));
        status.unwrap().read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn connect(&self, patience: Duration) -> Client {
        let made = Client::connect(self.address, Some(&secret()), &Port::default(), patience);
        made.unwrap().0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection of a hostile or slow peer, from any address of this machine.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    to: SocketAddr,
}

impl Raw {
    pub(crate) fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        // Without this, the system keeps the port of a closed connection for a minute.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.connect_timeout(&to.into(), Duration::from_secs(20))?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, to })
    }

    pub(crate) fn send(&mut self, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(body))
    }

    pub(crate) fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        assert!((1..=BODY_MAX).contains(&length), "the node sent {length} bytes");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Says hello, and returns both nonces.
    pub(crate) fn hello(&mut self) -> io::Result<[Nonce; 2]> {
        let ours = [7; 32];
        let hello = Message::Hello {
            version: VERSION,
            nonce: ours,
        };
        self.send(&hello.encode())?;
        match Message::decode(&self.receive()?) {
            Ok(Message::Challenge { nonce, .. }) => Ok([ours, nonce]),
            Ok(Message::Refuse(_)) => Err(io::ErrorKind::ConnectionRefused.into()),
            other => panic!("no challenge: {other:?}"),
        }
    }

    fn greeting<'a>(&self, secret: &'a Secret, nonces: [Nonce; 2], client: &'a Port) -> Greeting<'a> {
        Greeting {
            secret: Some(secret),
            nonces,
            to: self.to.into(),
            client,
        }
    }

    /// Returns the message that follows a hello, with a proof.
    pub(crate) fn proof(&self, secret: &Secret, nonces: [Nonce; 2]) -> Vec<u8> {
        let port = Port::default();
        let proof = Message::Proof {
            tag: self.greeting(secret, nonces, &port).proof(),
            to: self.to.into(),
            port: port.clone(),
        };
        proof.encode()
    }

    /// Greets the node. Returns `None` if the node has no room or refuses the secret.
    pub(crate) fn greet(&mut self, secret: &Secret) -> io::Result<Option<Session>> {
        let nonces = self.hello()?;
        let proof = self.proof(secret, nonces);
        self.send(&proof)?;
        let said = Message::decode(&self.receive()?).expect("the node speaks the protocol");
        let Message::Welcome { boot, port: node, .. } = &said else {
            return Ok(None);
        };
        let (client, welcoming) = (Port::default(), Welcoming { boot: *boot, node });
        let greeting = self.greeting(secret, nonces, &client);
        Ok(Some(greeting.session(Side::Client, welcoming)))
    }

    /// Reads all remaining messages. Returns whether the node then ended the connection.
    pub(crate) fn is_ended(&mut self) -> bool {
        let mut bytes = [0; 512];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Returns the frame of a body.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}
