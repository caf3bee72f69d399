//! A real PostgreSQL of the machine's own, to compare answers with.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{process::watch_log, wire_client::WireClient};

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// A server that is not ready after this long will not be.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What its log says when it is.
const READY: &str = "database system is ready to accept connections";
/// Another process may take the port that was free a moment ago.
const ATTEMPTS: usize = 5;

/// A cluster in a directory of its own; ended when dropped.
pub struct Postgres {
    server: Child,
    address: SocketAddr,
    /// Dropped last.
    _directory: TempDir,
}

impl Postgres {
    /// Makes a cluster, starts it, and waits until it serves.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    pub fn start() -> Self {
        let programs = programs();
        let directory = tempfile::tempdir().expect("a directory for PostgreSQL");
        let owner = Owner::of_clusters();
        owner.take(directory.path());
        let data = directory.path().join("data");
        let made = owner
            .command(&programs.join("initdb"))
            .arg("--pgdata")
            .arg(&data)
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .output()
            .expect("initdb can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for _ in 0..ATTEMPTS {
            let address = free_address();
            if let Some(server) = serve(&owner, &programs, &data, address) {
                return Self { server, address, _directory: directory };
            }
        }
        panic!("PostgreSQL did not start");
    }

    /// A session of the superuser.
    pub fn connect(&self) -> WireClient {
        WireClient::connect_with(self.address, &[("user", "postgres"), ("database", "postgres")]).expect("a session of PostgreSQL")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT: its processes end at once, and nothing is written.
        let _ = Command::new("kill").args(["-s", "QUIT"]).arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

/// The programs of the newest version.
fn programs() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin"))))
        .filter(|(_, programs)| programs.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().expect("PostgreSQL is installed (the package postgresql)").1
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Starts the server. `None` when it ends instead.
fn serve(owner: &Owner, programs: &Path, data: &Path, address: SocketAddr) -> Option<Child> {
    let mut server = owner
        .command(&programs.join("postgres"))
        .arg("-D")
        .arg(data)
        .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={}", address.port())])
        .args(["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "timezone=UTC"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("postgres can be run");
    let ready = watch_log(server.stderr.take().expect("piped"), |line| line.contains(READY).then_some(()));
    if ready.recv_timeout(START_TIMEOUT).is_ok() {
        return Some(server);
    }
    let _ = server.kill();
    let _ = server.wait();
    None
}

/// Whose processes they are: PostgreSQL refuses to run as root.
struct Owner(Option<(u32, u32)>);

impl Owner {
    fn of_clusters() -> Self {
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
        if !root {
            return Self(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").expect("the list of users");
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == "postgres");
        let fields = fields.expect("the package postgresql makes a user postgres");
        Self(Some((fields[2].parse().expect("a number"), fields[3].parse().expect("a number"))))
    }

    fn take(&self, directory: &Path) {
        if let Some((user, group)) = self.0 {
            std::os::unix::fs::chown(directory, Some(user), Some(group)).expect("root may give a directory away");
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group).current_dir("/");
        }
        command
    }
}
