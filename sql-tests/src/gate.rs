//! A gate on loopback in front of an HTTP server, which passes requests on, late, in part, some of them, or not at all.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// They are passed on.
    None,
    /// Connections are ended and new ones refused.
    Away,
    /// Each is passed on after so long.
    Slow(Duration),
    /// They are taken, and never answered.
    Silent,
    /// All are answered with this status and S3 error code.
    Failing(u16, &'static str),
    /// Of requests that change something, every third is answered so.
    EveryThirdFailing(u16, &'static str),
    /// Requests that change something are answered so; reads are passed on.
    Full(u16, &'static str),
    /// A body is passed on by half, then the connection ends.
    Cut,
    /// Requests that put an object whose name contains this are passed on, and the connection ends in place of the answer.
    Unanswered(&'static str),
    /// The first listing of objects is passed on when this is over.
    FirstListingHeld,
}

/// What all connections share.
struct Shared {
    state: Mutex<State>,
    /// The trouble is another one.
    changed: Condvar,
}

struct State {
    trouble: Trouble,
    /// Requests that could have changed something.
    changes: u64,
    /// Requests that have met the trouble at hand.
    met: u64,
    /// Connections that are open, by number, and how many there have been.
    passing: BTreeMap<u64, [TcpStream; 2]>,
    connections: u64,
}

/// See the module. It ends with the test's process.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Gate {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = State { trouble: Trouble::None, changes: 0, met: 0, passing: BTreeMap::new(), connections: 0 };
        let gate = Self { address, shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) };
        let shared = Arc::clone(&gate.shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(onwards) = TcpStream::connect(server) else { continue };
                let mut state = shared.state.lock().expect("no panics");
                if state.trouble == Trouble::Away {
                    state.met += 1;
                    continue;
                }
                let number = state.connections;
                state.connections += 1;
                state.passing.insert(number, [again(&client), again(&onwards)]);
                drop(state);
                let hears = Arc::new(AtomicBool::new(true));
                pass_back(&onwards, &client, &hears);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A connection that breaks is as good as one that ends.
                    let _ = pass_requests(&client, &onwards, &shared, &hears);
                    end(&[client, onwards]);
                    shared.state.lock().expect("no panics").passing.remove(&number);
                });
            }
        });
        gate
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        let mut state = self.shared.state.lock().expect("no panics");
        // What was kept waiting is not to be answered now.
        if matches!(trouble, Trouble::Away) || matches!(state.trouble, Trouble::Silent) {
            state.passing.values().for_each(end);
        }
        (state.trouble, state.met) = (trouble, 0);
        self.shared.changed.notify_all();
    }

    /// How many requests, or connections, have met the trouble that was set last.
    pub(crate) fn met(&self) -> u64 {
        self.shared.state.lock().expect("no panics").met
    }
}

fn again(socket: &TcpStream) -> TcpStream {
    socket.try_clone().expect("a socket")
}

/// Ends a connection. One that has ended already is as good.
fn end(sockets: &[TcpStream; 2]) {
    sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
}

/// Copies answers, until either side ends or the client is to hear no more.
fn pass_back(from: &TcpStream, to: &TcpStream, hears: &Arc<AtomicBool>) {
    let (mut from, mut to, hears) = (again(from), again(to), Arc::clone(hears));
    std::thread::spawn(move || {
        let mut answer = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut answer)
            && hears.load(Ordering::SeqCst)
            && to.write_all(&answer[..length]).is_ok()
        {}
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// What happens to one request.
enum Fate {
    Passes(Duration),
    IsHeld,
    IsCut,
    IsNotAnswered,
    Waits,
    Fails(u16, &'static str),
}

fn fate(shared: &Shared, head: &[u8], has_body: bool) -> Fate {
    let mut state = shared.state.lock().expect("no panics");
    let request = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default());
    let changes = !(request.starts_with("GET ") || request.starts_with("HEAD "));
    state.changes += u64::from(changes);
    let fate = match state.trouble {
        Trouble::Slow(delay) => Fate::Passes(delay),
        Trouble::Silent => Fate::Waits,
        Trouble::Failing(status, code) => Fate::Fails(status, code),
        Trouble::EveryThirdFailing(status, code) if changes && state.changes.is_multiple_of(3) => Fate::Fails(status, code),
        Trouble::Full(status, code) if changes => Fate::Fails(status, code),
        Trouble::Cut if has_body => Fate::IsCut,
        Trouble::Unanswered(part) if request.starts_with("PUT ") && request.contains(part) => Fate::IsNotAnswered,
        Trouble::FirstListingHeld if request.contains("list-type=2") && state.met == 0 => Fate::IsHeld,
        _ => return Fate::Passes(Duration::ZERO),
    };
    state.met += 1;
    fate
}

/// A client sends its next request when it has the answer to the one before.
fn pass_requests(client: &TcpStream, mut onwards: &TcpStream, shared: &Shared, hears: &AtomicBool) -> io::Result<()> {
    let (mut reader, mut back) = (BufReader::new(client), client);
    while let Some((head, length)) = read_head(&mut reader)? {
        let mut body = vec![0; length];
        match fate(shared, &head, length > 1) {
            Fate::Passes(delay) => {
                reader.read_exact(&mut body)?;
                wait(delay);
                onwards.write_all(&[head, body].concat())?;
            }
            Fate::IsHeld => {
                reader.read_exact(&mut body)?;
                let state = shared.state.lock().expect("no panics");
                drop(shared.changed.wait_while(state, |state| state.trouble == Trouble::FirstListingHeld));
                onwards.write_all(&[head, body].concat())?;
            }
            Fate::IsCut => {
                reader.read_exact(&mut body[..length / 2])?;
                onwards.write_all(&[&head, &body[..length / 2]].concat())?;
                return Ok(());
            }
            Fate::IsNotAnswered => {
                reader.read_exact(&mut body)?;
                hears.store(false, Ordering::SeqCst);
                onwards.write_all(&[head, body].concat())?;
                // Until the server has answered.
                io::copy(&mut reader, &mut io::sink())?;
                return Ok(());
            }
            Fate::Waits => {
                // Until the gate ends the connection, or the client gives up.
                io::copy(&mut reader, &mut io::sink())?;
                return Ok(());
            }
            Fate::Fails(status, code) => {
                reader.read_exact(&mut body)?;
                let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>told to</Message></Error>");
                let head = format!("HTTP/1.1 {status} Trouble\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n", text.len());
                back.write_all(format!("{head}{text}").as_bytes())?;
            }
        }
    }
    Ok(())
}

/// The next request's head, up to and with the empty line, and how long its body is. `None` at the end.
fn read_head(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<(Vec<u8>, usize)>> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let from = head.len();
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&head[from..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim().is_empty() && from > 0 {
            return Ok(Some((head, length)));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the gate is slow by purpose")]
fn wait(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}
