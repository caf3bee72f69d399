//! The server as a child process, to be killed in the middle of its work.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::wire_client::{ClientError, WireClient};

/// A server that is not ready after this long will not be.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What its log says when it is.
const READY: &str = "psql postgresql://millpond@";

/// The process, its log, and where it says its address.
struct Spawned {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    ready: mpsc::Receiver<SocketAddr>,
}

/// Reads what a process says, to its end. What `found` makes of a line is told to whoever waits for it.
pub(crate) fn watch_log<T: Send + 'static>(
    log: impl Read + Send + 'static,
    mut found: impl FnMut(String) -> Option<T> + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if let Some(found) = found(line) {
                // The test may have given up waiting.
                let _ = sender.send(found);
            }
        }
    });
    receiver
}

fn spawn(binary: &Path, directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Spawned {
    let mut child = Command::new(binary)
        .arg("--data-dir")
        .arg(directory)
        .args(["--listen", "127.0.0.1:0", "--http", "off"])
        .args(arguments)
        .env("NO_COLOR", "1")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server's binary can be run");
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&log);
    let ready = watch_log(child.stderr.take().expect("piped"), move |line| {
        eprintln!("{line}");
        let address = line.split_once(READY).and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
        kept.lock().expect("no panics").push(line);
        address
    });
    Spawned { child, log, ready }
}

/// A child process; killed when dropped.
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl ServerProcess {
    /// Starts `binary` on a directory, on free ports, and waits until it serves. Its log goes on to the test's standard error.
    ///
    /// # Panics
    /// When it ends or says nothing instead.
    pub fn start(binary: &Path, directory: &Path, arguments: &[&str]) -> Self {
        Self::start_with(binary, directory, arguments, &[])
    }

    /// The same with variables in its environment.
    ///
    /// # Panics
    /// When it ends or says nothing instead.
    pub fn start_with(binary: &Path, directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let Spawned { mut child, log, ready } = spawn(binary, directory, arguments, environment);
        match ready.recv_timeout(START_TIMEOUT) {
            Ok(address) => Self { child, address, log },
            Err(_) => {
                let _ = child.kill();
                panic!("the server did not start: {:?}", child.wait());
            }
        }
    }

    /// Starts a server and kills it when it serves, or after so long.
    ///
    /// # Panics
    /// When it ends by itself.
    pub fn start_and_kill(binary: &Path, directory: &Path, arguments: &[&str], after: Duration) {
        let Spawned { mut child, ready, .. } = spawn(binary, directory, arguments, &[]);
        if let Err(mpsc::RecvTimeoutError::Disconnected) = ready.recv_timeout(after) {
            panic!("the server did not start: {:?}", child.wait());
        }
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its number.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The lines of its log so far.
    ///
    /// # Panics
    /// When the thread that reads it has.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panics").clone()
    }

    /// A new session, or why not.
    pub fn connect(&self) -> Result<WireClient, ClientError> {
        WireClient::connect(self.address)
    }

    /// SIGKILL: nothing is said, written or closed.
    pub fn kill(mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// SIGTERM, and how the process ended.
    ///
    /// # Panics
    /// When it takes more than ten seconds.
    pub fn terminate(mut self) -> ExitStatus {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill can be run");
        assert!(sent.success());
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "the server did not end within ten seconds");
            std::thread::yield_now();
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
