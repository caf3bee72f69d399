//! Conversations that were right once: cut off, garbled, reordered, with lengths that lie, at startup and later.

use std::time::Instant;

use millpond_sql_tests::{WireClient, bind, close, describe, execute, frame, parse, query, startup};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{SEED, Target, duration, seed};

/// Conversations between two looks at the server.
const BATCH: u64 = 40;
/// Connections left open in the middle of a message at a time.
const ABANDONED: usize = 20;
/// Lengths of messages that are never right.
const LENGTHS: [u32; 9] = [0, 1, 3, 4, 5, 0x0100_0000, 0x4000_0000, 0x7fff_ffff, 0xffff_ffff];
const QUERIES: [&str; 10] = [
    "SELECT 1",
    "",
    ";;",
    "SELECT a, b FROM f WHERE a = $1",
    "INSERT INTO f VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
    "BEGIN; INSERT INTO f VALUES (1, 'x') ON CONFLICT DO NOTHING; ROLLBACK",
    "SELECT * FROM generate_series(1, 1000) AS x(g)",
    "COPY f FROM STDIN",
    "COPY f TO STDOUT (FORMAT binary)",
    "DECLARE c CURSOR FOR SELECT 1; FETCH 1 FROM c",
];
const TYPES: [u32; 8] = [0, 16, 20, 25, 1114, 1700, 2950, 999_999];

/// The first packets of sessions and of what is none.
fn opening(rng: &mut StdRng) -> Vec<u8> {
    let request = |code: u32, rest: &[u8]| [&(rest.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), rest].concat();
    match rng.random_range(0..8) {
        0 => request(80_877_103, &[]),
        1 => request(80_877_104, &[]),
        2 => request(80_877_102, &rng.random::<[u8; 8]>()),
        3 => startup(0x0002_0000, &[("user", "millpond")]),
        4 => startup(0x0003_0002, &[("user", "millpond"), ("_pq_.x", "1"), ("options", "-c datestyle=iso")]),
        5 => (0..rng.random_range(0..200)).map(|_| rng.random()).collect(),
        _ => startup(0x0003_0000, &[("user", "millpond"), ("database", "millpond"), ("client_encoding", "UTF8")]),
    }
}

/// A few messages that belong together.
fn act(rng: &mut StdRng, messages: &mut Vec<Vec<u8>>) {
    let name = *["", "s", "t"].choose(rng).expect("not empty");
    let sql = *QUERIES.choose(rng).expect("not empty");
    match rng.random_range(0..6) {
        0 => messages.push(query(sql)),
        1 | 2 => {
            let types: Vec<u32> = (0..rng.random_range(0..4)).map(|_| *TYPES.choose(rng).expect("not empty")).collect();
            let bytes: Vec<u8> = (0..rng.random_range(0..12)).map(|_| rng.random()).collect();
            let parameters = [Some(&bytes[..]), Some(b"1"), None];
            messages.push(parse(name, sql, &types));
            messages.push(describe(b'S', name));
            messages.push(bind(name, name, &parameters[..rng.random_range(0..=3)], rng.random(), rng.random()));
            messages.push(describe(b'P', name));
            messages.push(execute(name, rng.random_range(0..3)));
            messages.push(close(*[b'S', b'P'].choose(rng).expect("not empty"), name));
            messages.push(frame(b'S', &[]));
        }
        3 => {
            messages.push(query("COPY f FROM STDIN"));
            for _ in 0..rng.random_range(0..4) {
                messages.push(frame(b'd', format!("{}\tx\n", rng.random::<i32>()).as_bytes()));
            }
            messages.push(if rng.random() { frame(b'c', &[]) } else { frame(b'f', b"enough\0") });
        }
        4 => messages.push(frame(*[b'H', b'S', b'p', b'F', b'X', b'Z'].choose(rng).expect("not empty"), &rng.random::<[u8; 4]>())),
        _ => messages.push(frame(rng.random(), &rng.random::<[u8; 7]>())),
    }
}

/// Does something to messages that no client would.
fn mutate(rng: &mut StdRng, messages: &mut Vec<Vec<u8>>) {
    if messages.is_empty() {
        return;
    }
    let at = rng.random_range(0..messages.len());
    let other = rng.random_range(0..messages.len());
    let length = messages[at].len();
    match rng.random_range(0..8) {
        0 if length > 0 => {
            let byte = rng.random_range(0..length);
            messages[at][byte] = rng.random();
        }
        1 => messages[at].truncate(rng.random_range(0..=length)),
        2 if length >= 5 => {
            let lie = LENGTHS.choose(rng).expect("not empty").to_be_bytes();
            messages[at][1..5].copy_from_slice(&lie);
        }
        3 => messages.swap(at, other),
        4 => {
            let again = messages[at].clone();
            messages.insert(other, again);
        }
        5 => drop(messages.remove(at)),
        6 => {
            let noise: Vec<u8> = (0..rng.random_range(1..40)).map(|_| rng.random()).collect();
            messages[at].splice(length..length, noise);
        }
        _ if length > 6 => {
            // A count or length inside of the body.
            let byte = rng.random_range(5..length - 1);
            messages[at][byte..byte + 2].copy_from_slice(&[0xff, 0xff]);
        }
        _ => {}
    }
}

/// One connection, from its opening on. Answers one that is to be left as it is.
fn converse(target: &Target, rng: &mut StdRng, context: &str) -> Option<WireClient> {
    let mut messages = Vec::new();
    let mut client = if rng.random_range(0..3) == 0 {
        messages.push(opening(rng));
        WireClient::open(target.server.address()).unwrap_or_else(|error| panic!("{context}: {error}"))
    } else {
        target.connect(context)
    };
    for _ in 0..rng.random_range(1..6) {
        act(rng, &mut messages);
    }
    for _ in 0..rng.random_range(0..5) {
        mutate(rng, &mut messages);
    }
    // The server may have closed in the middle.
    let _ = client.send(&messages.concat());
    match rng.random_range(0..4) {
        0 => Some(client),
        1 => None,
        _ => {
            client.finish_sending();
            assert!(client.is_closed(), "{context}: not closed after the client's last byte");
            None
        }
    }
}

#[test]
fn garbled_conversations_are_answered_or_refused() {
    let mut target = Target::start();
    target.connect("the first session").query("CREATE TABLE f (a bigint PRIMARY KEY, b text)").expect("a table");
    let (started, mut number) = (Instant::now(), 0);
    let mut abandoned = Vec::new();
    while started.elapsed() < duration() {
        let seed = seed().wrapping_add(number);
        let context = format!("{SEED}={seed}");
        abandoned.extend(converse(&target, &mut StdRng::seed_from_u64(seed), &context));
        if abandoned.len() > ABANDONED {
            abandoned.remove(0);
        }
        number += 1;
        if number.is_multiple_of(BATCH) {
            target.assert_well(&context);
        }
    }
    target.assert_well("at the end");
    println!("{number} conversations");
}
