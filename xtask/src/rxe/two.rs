//! `cargo xtask rxe --two`: runs two machines as two hosts, one with memory nodes and one with clients.
//!
//! Each machine has a shell on its serial port. This program types the commands for both, so it can kill a node exactly
//! when a client reports that it is ready.

use super::{ACTIVE, image, kernel::Kernel, loading, programs::Program, vm};
use crate::Result;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// The text before the status of a command on a serial port.
const MARK: &str = "dmkit-two-status:";
/// The time limit of the whole run on a busy machine. On an idle machine it takes less than three minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// Memory of each machine, in megabytes.
const MEGABYTES: u32 = 1024;
/// The addresses on which the memory nodes listen.
const NODES: [&str; 2] = ["10.8.8.1:7471", "10.8.8.1:7472"];
const SECRET: &str = "secret";
/// Host memory of each memory node, in bytes.
const NODE_BYTES: u64 = 96 << 20;
/// The lease in milliseconds. Clients multiply it by the factor by which round trips are slower than between RNICs. The
/// result is about ten seconds, which is long enough for two emulated machines on a busy processor.
const LEASE_MS: u64 = 40;

/// Returns the script of a machine, which sets up the network and soft-RoCE and then waits for commands.
fn script(kernel: &Kernel) -> String {
    let mut script = loading(&kernel.modules);
    script.push_str(
        "for word in $(cat /proc/cmdline); do case $word in dmkit.address=*) address=${word#*=};; esac; done\n\
         ip addr add $address/24 dev eth0; ip link set eth0 up\n\
         rdma link add rxe0 type rxe netdev eth0\n",
    );
    script.push_str(ACTIVE);
    script.push_str(&format!(
        "cd /tmp; echo 'only two hosts know this' > {SECRET}; chmod 600 {SECRET}"
    ));
    script.push_str(&format!(
        "\necho '{MARK}0'\nwhile read -r line; do eval \"$line\"; echo \"{MARK}$?\"; done\n"
    ));
    script
}

pub(super) fn run(cache: &Path, kernel: &Kernel, built: &[Program]) -> Result<()> {
    let find = |name: &str| {
        let found = built
            .iter()
            .find(|program| program.name == name && !program.is_test);
        found.ok_or_else(|| format!("no program {name} was built"))
    };
    let (dmkit, client) = (find("dmkit")?, find("two_hosts")?);
    let initramfs = cache.join("two.cpio");
    let wire = cache.join("two.sock");
    let _ = std::fs::remove_file(&wire);
    std::fs::write(
        &initramfs,
        image(cache, kernel, &[dmkit.clone(), client.clone()], &script(kernel))?,
    )?;
    let went = hosts(kernel, &initramfs, &wire).and_then(|(nodes, clients)| {
        let mut play = Play {
            nodes,
            clients,
            dmkit: dmkit.path.display().to_string(),
            client: client.path.display().to_string(),
        };
        play.all()
    });
    let _ = std::fs::remove_file(&initramfs);
    let _ = std::fs::remove_file(&wire);
    went
}

/// Boots both machines. The second one connects to the first one's end of the virtual network.
fn hosts(kernel: &Kernel, initramfs: &Path, wire: &Path) -> Result<(Host, Host)> {
    let deadline = Instant::now() + PATIENCE;
    let start = |name: &'static str, number: u8, server: &str| -> Result<Host> {
        let words = [
            "-netdev".to_owned(),
            format!(
                "stream,id=n0,server={server},addr.type=unix,addr.path={}",
                wire.display()
            ),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0{number},romfile="),
        ];
        let address = format!("dmkit.address=10.8.8.{number}");
        let machine = vm::Machine::start(&kernel.image, initramfs, MEGABYTES, &address, &words)?;
        Ok(Host {
            name,
            machine,
            deadline,
        })
    };
    let mut nodes = start("nodes", 1, "on")?;
    while !wire.exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let mut clients = start("clients", 2, "off")?;
    nodes.wait_for_status("boot")?;
    clients.wait_for_status("boot")?;
    Ok((nodes, clients))
}

/// A virtual machine with a shell.
struct Host {
    name: &'static str,
    machine: vm::Machine,
    deadline: Instant,
}

impl Host {
    fn line(&self) -> Result<String> {
        let line = self.machine.line(self.deadline)?;
        if !line.contains(MARK) && !line.is_empty() {
            println!("{:>8}  {line}", self.name);
        }
        Ok(line)
    }

    /// Waits until a line contains `words`. Fails if the command ends first.
    fn wait_for(&self, words: &str) -> Result<()> {
        loop {
            let line = self.line()?;
            if line.contains(words) {
                return Ok(());
            }
            if let Some(status) = vm::status(&line, MARK) {
                return Err(format!("{} ended with {} without \"{words}\"", self.name, status?).into());
            }
        }
    }

    fn wait_for_status(&mut self, what: &str) -> Result<()> {
        loop {
            if let Some(status) = vm::status(&self.line()?, MARK) {
                return match status? {
                    0 => Ok(()),
                    failed => Err(format!("{}: {what}: status {failed}", self.name).into()),
                };
            }
        }
    }

    /// Types a command. The caller must wait for its status.
    fn begin(&mut self, command: &str) -> Result<()> {
        self.machine.type_line(command)
    }

    /// Runs a command to its end, and fails if its status is not 0.
    fn run(&mut self, command: &str) -> Result<()> {
        self.begin(command)?;
        self.wait_for_status(command)
    }
}

struct Play {
    nodes: Host,
    clients: Host,
    dmkit: String,
    client: String,
}

impl Play {
    /// Starts memory node `number`, and waits until it listens.
    fn start_node(&mut self, number: usize) -> Result<()> {
        let (dmkit, address) = (&self.dmkit, NODES[number]);
        self.nodes.run(&format!(
            "rm -f node{number}; {dmkit} serve --bytes {NODE_BYTES} --listen {address} --secret-file {SECRET} --lease-ms {LEASE_MS} \
             --metrics 127.0.0.1:947{number} > node{number} 2> log{number} & \
             echo $! > pid{number}; until grep -q serving node{number}; do usleep 50000; done"
        ))
    }

    fn start_nodes(&mut self) -> Result<()> {
        self.start_node(0)?;
        self.start_node(1)
    }

    /// Stops the memory nodes with a signal, and waits until they report that they have stopped.
    fn stop_nodes(&mut self) -> Result<()> {
        for number in 0..NODES.len() {
            self.nodes.run(&format!(
                "kill $(cat pid{number}); until grep -q stopped node{number}; do usleep 50000; done"
            ))?;
        }
        Ok(())
    }

    fn kill_node(&mut self, number: usize) -> Result<()> {
        self.nodes.run(&format!("kill -9 $(cat pid{number})"))
    }

    fn step(&self, step: &str) -> String {
        format!("{} {step} {SECRET} {} {}", self.client, NODES[0], NODES[1])
    }

    fn all(&mut self) -> Result<()> {
        let mut began = Instant::now();
        let mut lap = |what: &str| {
            println!("== {what}: {:.1} s", began.elapsed().as_secs_f64());
            began = Instant::now();
        };
        self.start_nodes()?;
        self.clients.run(&self.step("load"))?;
        lap("two hosts, a tree loaded");
        self.clients_die()?;
        lap("three clients were killed while another wrote to the same nodes; nothing acknowledged was lost");
        self.the_link_is_cut()?;
        lap("the link was cut and came back");
        self.a_node_dies()?;
        lap("a memory node was killed and started again");
        // If all nodes are killed and started again, the cluster is empty.
        self.kill_node(0)?;
        self.kill_node(1)?;
        self.start_nodes()?;
        self.clients.run(&self.step("load"))?;
        lap("all memory nodes were started again");
        self.stop_nodes()?;
        lap("all memory nodes ended cleanly");
        self.the_command()?;
        lap("doctor, index, bench and merge");
        Ok(())
    }

    /// Kills three writers in the middle of their writes. Another client continues to write to the same nodes. After
    /// each kill, a third client must find every acknowledged write.
    fn clients_die(&mut self) -> Result<()> {
        let (survive, write) = (self.step("survive"), self.step("write"));
        // The client runs in the background, so that the shell can run further commands.
        self.clients.run(&format!("{survive} & echo $! > survivor"))?;
        self.clients.wait_for("two: surviving")?;
        for _ in 0..3 {
            self.clients.run(&format!("{write} & echo $! > writer"))?;
            self.clients.wait_for("two: writing")?;
            self.clients.run("kill -9 $(cat writer)")?;
            self.clients.run(&self.step("verify"))?;
        }
        self.clients.run("touch enough; wait $(cat survivor)")
    }

    fn the_link_is_cut(&mut self) -> Result<()> {
        let cut = self.step("cut");
        self.clients.begin(&cut)?;
        self.clients.wait_for("two: ready")?;
        self.nodes.run("ip link set eth0 down")?;
        self.clients.wait_for("two: lost")?;
        self.nodes.run("ip link set eth0 up")?;
        self.clients.wait_for("two: back")?;
        self.clients.wait_for_status("cut")
    }

    fn a_node_dies(&mut self) -> Result<()> {
        let outage = self.step("outage");
        self.clients.begin(&outage)?;
        self.clients.wait_for("two: ready")?;
        self.kill_node(1)?;
        self.clients.wait_for("two: the other node goes on")?;
        self.start_node(1)?;
        self.clients.wait_for("two: begun again")?;
        self.clients.wait_for_status("outage")
    }

    /// Runs the commands of `docs/cluster.md` with Sherman, SMART, CHIME and Dolphin.
    fn the_command(&mut self) -> Result<()> {
        let dmkit = self.dmkit.clone();
        let [first, second] = NODES;
        // A round trip between emulated machines takes a few hundred times as long as one between RNICs.
        self.clients.run(&format!(
            "echo 'nodes = [\"{first}\", \"{second}\"]' > cluster.toml; \
             echo 'secret_file = \"{SECRET}\"' >> cluster.toml; \
             echo 'assume = [\"lines\"]' >> cluster.toml; echo 'slower = 256' >> cluster.toml"
        ))?;
        self.clients.run(&format!("{dmkit} doctor --assume lines"))?;
        let fabric = "--fabric ib:cluster.toml";
        let size = "--keys 2000 --ops 600 --coroutines 2 --no-plot";
        for index in ["sherman", "smart", "chime", "dolphin"] {
            self.start_nodes()?;
            let bench = format!("{dmkit} bench {fabric} --index {index} {size}");
            self.clients.run(&format!("{bench} --workload a --clients 2"))?;
            // Opening the pool as another index must fail; opening it as the same index must succeed.
            let other = if index == "sherman" { "smart" } else { "sherman" };
            self.clients
                .run(&format!("! {dmkit} index open {fabric} --index {other}"))?;
            self.clients
                .run(&format!("{dmkit} index open {fabric} --index {index}"))?;
            let part = |number| {
                format!(
                    "{bench} --pool open --workload c --clients 2 --machine {number}/2 --json > {number}.jsonl"
                )
            };
            let (zero, one) = (part(0), part(1));
            self.clients.run(&format!(
                "{zero} & {one} && wait $! && {dmkit} merge 0.jsonl 1.jsonl --no-plot"
            ))?;
            self.nodes
                .run("wget -q -O - http://127.0.0.1:9470/metrics | grep -q ^dmkit_")?;
            self.stop_nodes()?;
        }
        Ok(())
    }
}
