//! A node in a process that has few descriptors.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dm_control::{Builder, Client, DEFAULT_PATIENCE, Entrance, Fabric, Port, Ports};

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

/// Set in the process that is the node.
const NODE: &str = "DM_CONTROL_TEST_NODE";

/// A node as a process of its own.
struct Node {
    child: Child,
    address: SocketAddr,
}

impl Node {
    /// Starts this program again, with at most so many descriptors.
    fn start(descriptors: u32) -> Self {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {descriptors}; exec \"$0\" --exact a_node --nocapture");
        command
            .arg("-c")
            .arg(limited)
            .arg(std::env::current_exe().unwrap());
        command
            .env(NODE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.rsplit(' ').next()?.parse().ok());
        Self {
            child,
            address: address.unwrap(),
        }
    }

    /// Counts entries of the process in `/proc`.
    fn count(&self, of: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{of}", self.child.id()))
            .unwrap()
            .count()
    }

    fn connect(&self) -> Client {
        let made = Client::connect(self.address, None, &Port::default(), DEFAULT_PATIENCE);
        made.unwrap().0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The node's process runs this test alone.
#[test]
fn a_node() {
    if std::env::var_os(NODE).is_none() {
        return;
    }
    let node = Builder::new(1 << 20).start(Device).unwrap();
    writeln!(io::stdout(), "node at {}", node.address()).unwrap();
    // The pipe is closed when the process that has started this one ends.
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn ended_connections_give_their_descriptors_back_at_once_and_connections_cost_no_thread() {
    let node = Node::start(1000);
    let mut first = node.connect();
    let (descriptors, threads) = (node.count("fd"), node.count("task"));
    let clients: Vec<_> = (0..150).map(|_| node.connect()).collect();
    assert_eq!(node.count("fd"), descriptors + 150);
    assert_eq!(node.count("task"), threads);
    drop(clients);
    // No other connection comes.
    let deadline = Instant::now() + Duration::from_secs(30);
    while node.count("fd") > descriptors {
        assert!(Instant::now() < deadline, "{} of {descriptors}", node.count("fd"));
        std::thread::yield_now();
    }
    first.enter(Entrance::Claim).unwrap();
}

#[test]
fn without_descriptors_strangers_make_room_for_clients() {
    let node = Node::start(30);
    let slow: Vec<_> = (0..60).map(|_| TcpStream::connect(node.address)).collect();
    let mut clients: Vec<_> = (0..10).map(|_| node.connect()).collect();
    for client in &mut clients {
        client.enter(Entrance::Claim).unwrap();
    }
    assert_eq!(slow.len(), 60);
}
