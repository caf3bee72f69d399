//! Random histories of a few tables: few distinct values, so that rows meet, with NULLs and duplicates, changed by every kind of DML.

/// A small generator of numbers (xorshift), so that a seed means the same everywhere.
#[derive(Clone)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// What the values of a column are.
#[derive(Clone, Copy)]
enum Values {
    /// Numbers in order, from 1 on.
    Key,
    Integer,
    Text,
    Numeric,
    /// Halves and quarters, whose sums are exact in any order.
    Double,
    Boolean,
    Timestamp,
    Date,
}

struct Table {
    name: &'static str,
    columns: &'static [(&'static str, &'static str, Values)],
}

impl Table {
    /// Whether the first column is a primary key.
    fn keyed(&self) -> bool {
        matches!(self.columns[0].2, Values::Key)
    }
}

const TABLES: [Table; 4] = [
    Table {
        name: "t",
        columns: &[
            ("id", "int", Values::Key),
            ("k", "int", Values::Integer),
            ("v", "bigint", Values::Integer),
            ("s", "text", Values::Text),
        ],
    },
    Table {
        name: "u",
        columns: &[
            ("id", "int", Values::Key),
            ("t_id", "int", Values::Integer),
            ("w", "bigint", Values::Integer),
            ("s", "text", Values::Text),
        ],
    },
    Table { name: "bag", columns: &[("k", "int", Values::Integer), ("v", "bigint", Values::Integer)] },
    Table {
        name: "m",
        columns: &[
            ("id", "int", Values::Key),
            ("d", "numeric(10,2)", Values::Numeric),
            ("f", "double precision", Values::Double),
            ("b", "boolean", Values::Boolean),
            ("at", "timestamp", Values::Timestamp),
            ("day", "date", Values::Date),
        ],
    },
];

/// A view that others read.
const BUSY: &str = "SELECT k, count(*) AS n FROM bag GROUP BY k";

/// Statements that make the tables and the view that the queries read, here.
pub(crate) fn definitions() -> Vec<String> {
    statements("MATERIALIZED VIEW", |table| match table.name {
        // A table keeps its late rows: nothing may depend on the watermark.
        "m" => ", WATERMARK FOR at AS at - INTERVAL '5 minutes'",
        _ => "",
    })
}

/// The same for PostgreSQL.
pub(crate) fn definitions_for_postgres() -> Vec<String> {
    statements("VIEW", |_| "")
}

fn statements(view: &str, more: fn(&Table) -> &'static str) -> Vec<String> {
    let mut statements: Vec<String> = TABLES
        .iter()
        .map(|table| {
            let column = |(name, sql_type, values): &(&str, &str, Values)| {
                let key = if matches!(values, Values::Key) { " PRIMARY KEY" } else { "" };
                format!("{name} {sql_type}{key}")
            };
            let columns: Vec<String> = table.columns.iter().map(column).collect();
            format!("CREATE TABLE {} ({}{})", table.name, columns.join(", "), more(table))
        })
        .collect();
    statements.push(format!("CREATE {view} busy AS {BUSY}"));
    statements
}

/// Statements, one after the other.
pub(crate) struct History {
    numbers: Numbers,
    /// The next key of each table.
    next: [u64; TABLES.len()],
    /// Between two keys: histories that run at the same time take different ones.
    stride: u64,
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of_one_among(seed, 0, 1)
    }

    /// The history of one writer of several.
    pub(crate) fn of_one_among(seed: u64, writer: u64, writers: u64) -> Self {
        Self { numbers: Numbers::new(seed), next: [1 + writer; TABLES.len()], stride: writers }
    }

    /// The next statement, or a whole transaction as one script.
    pub(crate) fn step(&mut self) -> String {
        match self.numbers.below(10) {
            0 => {
                let statements: Vec<String> = (0..2 + self.numbers.below(3)).map(|_| self.statement()).collect();
                let end = self.numbers.one_of(&["COMMIT", "COMMIT", "ROLLBACK"]);
                format!("BEGIN; {}; {end}", statements.join("; "))
            }
            _ => self.statement(),
        }
    }

    fn statement(&mut self) -> String {
        let at = self.numbers.below(TABLES.len() as u64) as usize;
        let table = &TABLES[at];
        match self.numbers.below(20) {
            0..=9 => self.insert(at),
            10 if table.keyed() => {
                let key = self.some_key(at);
                let row = self.row(at, Some(key));
                let set = table.columns[1..].iter().map(|(name, ..)| format!("{name} = excluded.{name}"));
                format!("INSERT INTO {} VALUES {row} ON CONFLICT (id) DO UPDATE SET {}", table.name, set.collect::<Vec<_>>().join(", "))
            }
            11 if table.keyed() => {
                // The key itself changes; the new one is free in any case.
                let (old, new) = (self.some_key(at), self.take_key(at));
                format!("UPDATE {} SET id = {new} WHERE id = {old}", table.name)
            }
            10..=15 => {
                let condition = self.condition(at);
                format!("UPDATE {} SET {} WHERE {condition}", table.name, self.assignments(at))
            }
            16..=18 => format!("DELETE FROM {} WHERE {}", table.name, self.condition(at)),
            // Sometimes everything goes.
            _ if self.numbers.below(4) == 0 => self.numbers.one_of(&["TRUNCATE", "DELETE FROM"]).to_owned() + " " + table.name,
            _ => self.insert(at),
        }
    }

    fn insert(&mut self, at: usize) -> String {
        let rows: Vec<String> = (0..1 + self.numbers.below(4)).map(|_| self.row(at, None)).collect();
        format!("INSERT INTO {} VALUES {}", TABLES[at].name, rows.join(", "))
    }

    fn row(&mut self, at: usize, key: Option<u64>) -> String {
        let key = if TABLES[at].keyed() { key.unwrap_or_else(|| self.take_key(at)) } else { 0 };
        let values = TABLES[at].columns.iter().map(|(_, _, values)| match values {
            Values::Key => key.to_string(),
            values => self.value(*values),
        });
        format!("({})", values.collect::<Vec<_>>().join(", "))
    }

    fn take_key(&mut self, at: usize) -> u64 {
        self.next[at] += self.stride;
        self.next[at] - self.stride
    }

    /// A key that is, was or will be.
    fn some_key(&mut self, at: usize) -> u64 {
        // Not above the next one: it would be taken twice.
        1 + self.numbers.below(self.next[at].max(2) - 1)
    }

    fn assignments(&mut self, at: usize) -> String {
        let columns = TABLES[at].columns;
        let first = usize::from(TABLES[at].keyed());
        let (name, _, values) = columns[first + self.numbers.below((columns.len() - first) as u64) as usize];
        match values {
            Values::Integer | Values::Numeric | Values::Double if self.numbers.below(2) == 0 => format!("{name} = {name} + 1"),
            values => format!("{name} = {}", self.value(values)),
        }
    }

    fn condition(&mut self, at: usize) -> String {
        if TABLES[at].keyed() && self.numbers.below(3) > 0 {
            return format!("id = {}", self.some_key(at));
        }
        let columns = TABLES[at].columns;
        let first = usize::from(TABLES[at].keyed());
        let (name, _, values) = columns[first + self.numbers.below((columns.len() - first) as u64) as usize];
        match self.value(values).as_str() {
            "NULL" => format!("{name} IS NULL"),
            value => format!("{name} = {value}"),
        }
    }

    fn value(&mut self, values: Values) -> String {
        let numbers = &mut self.numbers;
        if numbers.below(6) == 0 {
            return "NULL".to_owned();
        }
        match values {
            Values::Key | Values::Integer => (numbers.below(7) as i64 - 1).to_string(),
            Values::Text => format!("'{}'", numbers.one_of(&["", "a", "aa", "b", "Zoë"])),
            Values::Numeric => format!("{}.{}", numbers.below(4), numbers.one_of(&["00", "25", "50", "99"])),
            Values::Double => format!("{}.{}", numbers.below(4) as i64 - 1, numbers.one_of(&["0", "25", "5"])),
            Values::Boolean => numbers.one_of(&["true", "false"]).to_owned(),
            Values::Timestamp => format!("TIMESTAMP '2026-03-01 {:02}:{:02}:00'", 9 + numbers.below(2), numbers.below(12) * 5),
            Values::Date => format!("DATE '2026-02-{:02}'", 27 + numbers.below(2)),
        }
    }
}
