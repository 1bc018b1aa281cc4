//! Addresses and settings of all parts.

use std::{
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::json;

use super::{DISK_BYTES, Network, Part, Version, mount, run, text};
use crate::chaos::{
    plan::{Link, links},
    proxy::{Proxy, Target},
};

/// Credits of the consumer.
const CREDITS: &str = "10000000";

impl Network {
    /// Chooses ports, starts the proxies and writes the settings of servers and coordinators.
    pub(super) async fn lay_out(&mut self, lease: Duration) {
        let clients = ports(self.size.servers);
        let clusters = ports(self.size.servers);
        let apis = ports(self.size.coordinators);
        for link in links(self.size) {
            let target = match link {
                Link::Consumers | Link::AgentApi(_) => Target::AnyOf(apis.clone()),
                Link::AgentFabric(_) | Link::CoordinatorFabric(_) => Target::AnyOf(clients.clone()),
                Link::CoordinatorDatabase(_) => Target::Socket(self.database_socket()),
                Link::Route(_, other) => Target::AnyOf(vec![clusters[other]]),
            };
            let proxy = Proxy::start(target).await.expect("a proxy");
            self.links.insert(link, proxy);
            if let Link::Route(one, other) = link {
                let proxy = Proxy::start(Target::AnyOf(vec![clusters[one]])).await.expect("a proxy");
                self.returns.insert((other, one), proxy);
            }
        }
        self.write_servers(&clients, &clusters);
        self.write_coordinators(&apis, lease);
    }

    fn write_servers(&self, clients: &[SocketAddr], clusters: &[SocketAddr]) {
        let fabric = self.path("fabric");
        let store = self.path("nats");
        self.coordinator_command(&[
            "--config",
            text(&self.path("init.toml")),
            "--fabric-dir",
            text(&fabric),
            "init",
            "--nats-listen",
            &clients[0].to_string(),
            "--store-dir",
            text(&store),
        ]);
        let made = fs::read_to_string(fabric.join("nats.conf")).expect("the server's settings");
        for server in 0..self.size.servers {
            let others = (0..self.size.servers).filter(|other| *other != server);
            let routes = others.map(|other| {
                let there = self.links.get(&Link::Route(server, other));
                let proxy =
                    there.or_else(|| self.returns.get(&(server, other))).expect("every pair is connected");
                format!("nats://{}", proxy.address())
            });
            let mut settings = made
                .replace("server_name: \"island\"", &format!("server_name: nats-{server}"))
                .replace(&clients[0].to_string(), &clients[server].to_string())
                .replace("include \"nats.local.conf\"", "")
                .replace(text(&store), text(&self.store(server)))
                .replace(text(&fabric.join("resolver")), text(&fabric.join(format!("resolver-{server}"))));
            // Routes lead through proxies only: the address that a server advertises to others cannot be connected to.
            let _ = write!(
                settings,
                "ping_interval: \"2s\"\ncluster {{\n  name: chaos\n  listen: \"{}\"\n  advertise: \"127.0.0.1:1\"\n  no_advertise: true\n  \
                 ping_interval: \"2s\"\n  routes: [{}]\n}}\n",
                clusters[server],
                routes.map(|route| format!("{route:?}")).collect::<Vec<_>>().join(", "),
            );
            let path = self.path(&format!("nats-{server}.conf"));
            fs::write(&path, settings).expect("write the server's settings");
            fs::create_dir_all(self.store(server)).expect("a folder");
            self.add(Part::Server(server), nats_server(), vec!["-c".to_owned(), text(&path).to_owned()]);
        }
    }

    fn write_coordinators(&self, apis: &[SocketAddr], lease: Duration) {
        let lease_ms = lease.as_millis() as u64;
        for (number, listen) in apis.iter().enumerate() {
            self.link_catalogue(number, &self.version);
            let database = self.links[&Link::CoordinatorDatabase(number)].address();
            let name = self.database.split(['/', '?']).nth(3).expect("the database's name");
            let settings = json!({
                "http": { "listen": listen.to_string(), "drain_s": 2 },
                "database": { "url": format!("postgres://island@{database}/{name}") },
                "fabric": {
                    "url": format!("nats://{}", self.links[&Link::CoordinatorFabric(number)].address()),
                    "dir": self.path("fabric"),
                },
                "catalogue": { "dir": self.catalogue(number), "fixtures": true },
                "limits": { "requests_per_minute": 0, "concurrent_jobs": 0, "concurrent_streams": 0 },
                "jobs": {
                    "lease_ms": lease_ms,
                    "heartbeat_ms": lease_ms / 6,
                    "takeover_ms": lease_ms / 4,
                    "prepare_stall_ms": lease_ms * 4,
                    "max_wait_s": 120,
                },
            });
            let path = self.path(&format!("coordinator-{number}.toml"));
            fs::write(&path, toml::to_string(&settings).expect("TOML")).expect("write the settings");
            let arguments = vec!["--config".to_owned(), text(&path).to_owned(), "serve".to_owned()];
            self.add(Part::Coordinator(number), self.version.coordinator.clone(), arguments);
        }
    }

    /// The path under which a coordinator finds its catalogue: a link, since a package replaces it together with the program.
    pub(super) fn catalogue(&self, coordinator: usize) -> PathBuf {
        self.path(&format!("cargos-{coordinator}"))
    }

    /// Gives a coordinator the catalogue of a version.
    pub(super) fn link_catalogue(&self, coordinator: usize, version: &Version) {
        symlink(&version.catalogue, self.catalogue(coordinator)).expect("link the catalogue");
    }

    /// Creates the consumer, whose key is kept, and returns the key of the Islands' owner.
    pub(super) fn make_accounts(&mut self) -> String {
        let make = |email: &str, credits: &str, operator: bool| {
            let config = self.path("coordinator-0.toml");
            let admin = |arguments: &[&str]| {
                let config = ["--config", text(&config), "admin"];
                self.coordinator_command(&[&config, arguments].concat()).trim().to_owned()
            };
            let mut create = vec!["account", "create", "--email", email, "--credits", credits];
            create.extend(operator.then_some("--operator"));
            let account = admin(&create);
            admin(&["key", "create", "--account", &account, "--name", "chaos"])
        };
        let consumer = make("consumer@island.localhost", CREDITS, true);
        let owner = make("owner@island.localhost", "0", false);
        self.key = consumer;
        owner
    }

    pub(super) fn write_agents(&self, owner: &str) {
        for number in 0..self.size.islands {
            let state = self.state(number);
            fs::create_dir_all(&state).expect("a folder");
            if self.has_disks {
                mount(&state, DISK_BYTES);
            }
            let settings = json!({
                "state_dir": state,
                "api_url": format!("http://{}", self.links[&Link::AgentApi(number)].address()),
                "nats_url": format!("nats://{}", self.links[&Link::AgentFabric(number)].address()),
                "api_key": owner,
                "name": format!("island-{number}"),
                "simulated": true,
                "measure": false,
                "cache": { "dir": self.path("cache") },
            });
            let path = self.path(&format!("island-{number}.toml"));
            fs::write(&path, toml::to_string(&settings).expect("TOML")).expect("write the settings");
            let arguments = vec!["--config".to_owned(), text(&path).to_owned(), "run".to_owned()];
            self.add(Part::Agent(number), self.version.agent.clone(), arguments);
        }
    }

    fn database_socket(&self) -> PathBuf {
        self.database_folder().join(".s.PGSQL.5432")
    }

    /// The folder of the database and its socket.
    pub(super) fn database_folder(&self) -> &Path {
        let (_, folder) = self.database.split_once("host=").expect("the database listens on a socket");
        Path::new(folder)
    }

    fn coordinator_command(&self, arguments: &[&str]) -> String {
        run(Command::new(&self.version.coordinator).args(arguments))
    }
}

/// Free ports of this machine, held for a moment so that they differ.
fn ports(count: usize) -> Vec<SocketAddr> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect()
}

/// The server that `scripts/setup.sh` installs.
fn nats_server() -> PathBuf {
    let own = island_testing::workspace().join(".tools/bin/nats-server");
    if own.is_file() { own } else { PathBuf::from("nats-server") }
}
