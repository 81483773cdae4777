//! A node in a process that has few descriptors.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use dm_control::{Client, DEFAULT_PATIENCE, Entrance, Port};

use crate::process::{Node, Raw, secret};

#[test]
fn ended_connections_give_their_descriptors_back_at_once_and_connections_cost_no_thread() {
    let node = Node::start(1000, Stdio::null());
    let mut first = node.connect(DEFAULT_PATIENCE);
    let (descriptors, threads) = (node.count("fd"), node.count("task"));
    let clients: Vec<_> = (0..150).map(|_| node.connect(DEFAULT_PATIENCE)).collect();
    assert_eq!(node.count("fd"), descriptors + 150);
    assert_eq!(node.count("task"), threads);
    drop(clients);
    // The node must free the descriptors without another event.
    let deadline = Instant::now() + Duration::from_secs(30);
    while node.count("fd") > descriptors {
        let left = node.count("fd");
        assert!(Instant::now() < deadline, "{left} of {descriptors}");
        std::thread::yield_now();
    }
    first.enter(Entrance::Claim).unwrap();
}

#[test]
fn without_descriptors_strangers_make_room_for_clients() {
    let node = Node::start(30, Stdio::null());
    let slow: Vec<_> = (0..60).map(|_| TcpStream::connect(node.address)).collect();
    let mut clients: Vec<_> = (0..10).map(|_| node.connect(DEFAULT_PATIENCE)).collect();
    for client in &mut clients {
        client.enter(Entrance::Claim).unwrap();
    }
    assert_eq!(slow.len(), 60);
}

#[test]
fn a_waiting_connection_gets_the_next_free_descriptor() {
    let node = Node::start(30, Stdio::null());
    let mut clients = Vec::new();
    let soon = Duration::from_millis(300);
    let port = Port::default();
    while let Ok((client, _)) = Client::connect(node.address, Some(&secret()), &port, soon) {
        clients.push(client);
        assert!(clients.len() < 30);
    }
    // This connection waits in the listener's queue. When a descriptor becomes free, no event reports the connection.
    let mut waits = Raw::connect(Ipv4Addr::LOCALHOST, node.address).unwrap();
    drop(clients.pop());
    let deadline = Instant::now() + Duration::from_secs(30);
    // The node has no room until it has noticed that a client has left.
    while !matches!(waits.greet(&secret()), Ok(Some(_))) {
        assert!(Instant::now() < deadline, "no connection is accepted");
        std::thread::yield_now();
        waits = Raw::connect(Ipv4Addr::LOCALHOST, node.address).unwrap();
    }
    clients[0].enter(Entrance::Claim).unwrap();
}
