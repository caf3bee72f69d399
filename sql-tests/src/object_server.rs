//! A real S3 server on loopback, with a gate in front of it that can be shut, and more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::gate::{Gate, Trouble};
use crate::process::watch_log;

/// A server that is not ready after this long will not be.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What its log says when it is.
const READY: &str = "Running on http://";
/// Whoever it is, is let in.
const KEY: &str = "testing";

/// The server, with its objects in memory; ended when dropped.
pub struct ObjectServer {
    server: Child,
    address: SocketAddr,
    gate: Gate,
}

impl ObjectServer {
    /// Installs the server if it is not there yet, and starts it on a free port.
    ///
    /// # Panics
    /// When it cannot be installed or says nothing.
    pub fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("object_server/install");
        let installed = Command::new(&script).stderr(Stdio::inherit()).output().expect("the script can be run");
        assert!(installed.status.success(), "{} failed", script.display());
        let folder = String::from_utf8(installed.stdout).expect("a path");
        let mut server = Command::new(Path::new(folder.trim()).join("bin/moto_server"))
            .args(["--host", "127.0.0.1", "--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server can be run");
        let ready = watch_log(server.stderr.take().expect("piped"), |line| line.split_once(READY)?.1.trim().parse::<SocketAddr>().ok());
        let address = ready.recv_timeout(START_TIMEOUT);
        let Ok(address) = address else {
            let _ = server.kill();
            panic!("the S3 server did not start: {:?}", server.wait());
        };
        Self { server, address, gate: Gate::before(address) }
    }

    /// What a client has in its environment to come through the gate.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.gate.address)),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEY.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Shuts the gate: connections are ended and new ones refused, until it is opened again.
    pub fn set_reachable(&self, reachable: bool) {
        self.set_trouble(if reachable { Trouble::None } else { Trouble::Away });
    }

    /// From now on this happens to the requests of clients at the gate.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.gate.set(trouble);
    }

    /// How many requests, or connections, have met the trouble that was set last.
    pub fn met_trouble(&self) -> u64 {
        self.gate.met()
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn create_bucket(&self, bucket: &str) {
        let (status, answer) = self.request("PUT", bucket, &[]);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }

    /// Puts an object.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn put(&self, bucket: &str, name: &str, bytes: &[u8]) {
        let (status, answer) = self.request("PUT", &format!("{bucket}/{name}"), bytes);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }

    /// The bytes of an object.
    ///
    /// # Panics
    /// When there is none.
    pub fn get(&self, bucket: &str, name: &str) -> Vec<u8> {
        let (status, answer) = self.request("GET", &format!("{bucket}/{name}"), &[]);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        answer
    }

    /// The names of a bucket's objects, the first thousand.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn list(&self, bucket: &str) -> Vec<String> {
        let (status, answer) = self.request("GET", &format!("{bucket}?list-type=2"), &[]);
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(status, 200, "{answer}");
        answer.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned())).collect()
    }

    /// One request that does not come through the gate: status and body.
    fn request(&self, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut socket = TcpStream::connect(self.address).expect("the S3 server listens");
        let head = format!(
            "{method} /{target} HTTP/1.0\r\nHost: {}\r\nContent-Length: {}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={KEY}/20310101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all(&[head.as_bytes(), body].concat()).expect("sent");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_off(end + 4))
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
