//! Every setting of the process, from the command line, the environment (`MILLPOND_*`), a TOML file, and defaults, in this order.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;
use thiserror::Error;

/// What a server is started with. Nothing is read from the environment after this has been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where everything is kept; made when missing, locked while the server runs.
    pub data_dir: PathBuf,
    /// `host:port` of the Postgres protocol; port 0 takes a free one.
    pub listen: String,
    /// `host:port` of `/healthz` and `/metrics`; `None` for none.
    pub http: Option<String>,
    /// For caches, queries, exchanges and connectors together.
    pub memory_limit_bytes: usize,
    /// URL of the store for checkpoints; `None` is a folder of the data directory.
    pub object_store: Option<String>,
    /// Asked for with SCRAM-SHA-256 when set; otherwise only connections from this machine are let in.
    pub password: Option<String>,
    /// Sessions at a time.
    pub max_connections: usize,
    /// Subtasks of a fragment.
    pub parallelism: usize,
    /// Between two checkpoints of a job.
    pub checkpoint_interval: Duration,
    /// Longest time for which changes wait before their epoch is closed.
    pub tick: Duration,
    /// Where operators keep their state while they run.
    pub state_backend: StateBackend,
}

/// Where operators keep their state while they run; checkpoints are the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateBackend {
    /// Memory within the budget, RocksDB behind it.
    Rocksdb,
    /// Memory only.
    Memory,
}

/// A setting that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("could not read the configuration file \"{}\": {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not TOML, or has keys that are no settings.
    #[error("the configuration file \"{}\" is not valid: {message}", file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// What is wrong, with its place.
        message: String,
    },
    /// A value that is out of its range.
    #[error("invalid value for \"{name}\": {message}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What is wrong.
        message: String,
    },
}

const DEFAULT_DATA_DIR: &str = "./millpond-data";
const DEFAULT_LISTEN: &str = "127.0.0.1:4590";
const DEFAULT_HTTP: &str = "127.0.0.1:4591";
const DEFAULT_MAX_CONNECTIONS: usize = 500;
const DEFAULT_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(100);
/// Below this nothing useful runs.
const LEAST_MEMORY_BYTES: usize = 4 << 20;
/// Half of this is assumed where the system does not say how much memory there is.
const ASSUMED_MEMORY_BYTES: usize = 4 << 30;

/// A SQL-first streaming database server that speaks the Postgres protocol.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, about, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server (also without this word).
    Serve(ServeArgs),
}

#[derive(Debug, Default, Args)]
struct ServeArgs {
    /// Where everything is kept [default: ./millpond-data]
    #[arg(long, env = "MILLPOND_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address of the Postgres protocol [default: 127.0.0.1:4590]
    #[arg(long, env = "MILLPOND_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address of /healthz and /metrics, "off" for none [default: 127.0.0.1:4591]
    #[arg(long, env = "MILLPOND_HTTP", value_name = "HOST:PORT")]
    http: Option<String>,
    /// Memory for state, queries and buffers together [default: half of the machine's]
    #[arg(long, env = "MILLPOND_MEMORY_LIMIT", value_name = "BYTES")]
    memory_limit: Option<String>,
    /// Where checkpoints go [default: a folder of the data directory]
    #[arg(long, env = "MILLPOND_OBJECT_STORE", value_name = "URL")]
    object_store: Option<String>,
    /// Password of the user millpond; without one only this machine may connect
    #[arg(long, env = "MILLPOND_PASSWORD", value_name = "PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Sessions at a time [default: 500]
    #[arg(long, env = "MILLPOND_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<usize>,
    /// Subtasks of a fragment [default: the number of cores]
    #[arg(long, env = "MILLPOND_PARALLELISM", value_name = "N")]
    parallelism: Option<usize>,
    /// Milliseconds between two checkpoints of a job [default: 10000]
    #[arg(long, env = "MILLPOND_CHECKPOINT_INTERVAL_MS", value_name = "MS")]
    checkpoint_interval_ms: Option<u64>,
    /// Where operators keep their state while they run [default: rocksdb]
    #[arg(long, env = "MILLPOND_STATE_BACKEND", value_name = "BACKEND")]
    state_backend: Option<StateBackend>,
    /// A file with these settings, named alike with underscores
    #[arg(long, env = "MILLPOND_CONFIG", value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    data_dir: Option<PathBuf>,
    listen: Option<String>,
    http: Option<String>,
    memory_limit: Option<MemoryLimit>,
    object_store: Option<String>,
    password: Option<String>,
    max_connections: Option<usize>,
    parallelism: Option<usize>,
    checkpoint_interval_ms: Option<u64>,
    state_backend: Option<StateBackend>,
}

/// A number of bytes, or a text with a unit.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MemoryLimit {
    Bytes(u64),
    Text(String),
}

impl CommandLine {
    /// The settings, the file's among them.
    ///
    /// # Errors
    /// A file that cannot be read or used, a value out of its range.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let args = match self.command {
            Some(Command::Serve(args)) => args,
            None => self.serve,
        };
        let file = args.config.as_ref().map(read_file).transpose()?.unwrap_or_default();
        let memory_limit = args.memory_limit.map(MemoryLimit::Text).or(file.memory_limit);
        let http = args.http.or(file.http).unwrap_or_else(|| DEFAULT_HTTP.to_string());
        let parallelism = args.parallelism.or(file.parallelism).unwrap_or_else(cores);
        let interval = args.checkpoint_interval_ms.or(file.checkpoint_interval_ms).map(Duration::from_millis);
        let config = Config {
            data_dir: args.data_dir.or(file.data_dir).unwrap_or_else(|| DEFAULT_DATA_DIR.into()),
            listen: args.listen.or(file.listen).unwrap_or_else(|| DEFAULT_LISTEN.to_string()),
            http: (http != "off").then_some(http),
            memory_limit_bytes: memory_limit.map_or_else(|| Ok(machine_memory_bytes() / 2), MemoryLimit::bytes)?,
            object_store: args.object_store.or(file.object_store),
            password: args.password.or(file.password).filter(|password| !password.is_empty()),
            max_connections: args.max_connections.or(file.max_connections).unwrap_or(DEFAULT_MAX_CONNECTIONS),
            parallelism,
            checkpoint_interval: interval.unwrap_or(DEFAULT_CHECKPOINT_INTERVAL),
            tick: TICK,
            state_backend: args.state_backend.or(file.state_backend).unwrap_or(StateBackend::Rocksdb),
        };
        config.check()?;
        Ok(config)
    }
}

impl Config {
    /// What a server on a directory has when nothing is said, except that it takes free ports: for servers inside of a test.
    pub fn for_tests(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: "127.0.0.1:0".to_string(),
            http: Some("127.0.0.1:0".to_string()),
            memory_limit_bytes: 256 << 20,
            object_store: None,
            password: None,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            parallelism: 2,
            checkpoint_interval: Duration::from_secs(1),
            tick: TICK,
            state_backend: StateBackend::Rocksdb,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let error = |name, message: &str| Err(ConfigError::Value { name, message: message.to_string() });
        if self.memory_limit_bytes < LEAST_MEMORY_BYTES {
            return error("memory_limit", "at least 4 MiB are needed");
        }
        if self.max_connections == 0 || self.max_connections > 100_000 {
            return error("max_connections", "from 1 to 100000");
        }
        if self.parallelism == 0 || self.parallelism > 256 {
            return error("parallelism", "from 1 to 256");
        }
        if self.checkpoint_interval < Duration::from_millis(10) {
            return error("checkpoint_interval_ms", "at least 10");
        }
        Ok(())
    }
}

impl MemoryLimit {
    fn bytes(self) -> Result<usize, ConfigError> {
        let text = match self {
            Self::Bytes(bytes) => return Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Self::Text(text) => text,
        };
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => 0,
        };
        let bytes = digits.parse::<usize>().ok().filter(|_| factor > 0).and_then(|number| number.checked_mul(factor));
        bytes.ok_or_else(|| ConfigError::Value { name: "memory_limit", message: format!("\"{text}\" is not a number of bytes") })
    }
}

fn read_file(file: &PathBuf) -> Result<ConfigFile, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Read { file: file.clone(), source })?;
    toml::from_str(&text).map_err(|error| ConfigError::Parse { file: file.clone(), message: error.to_string() })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the machine has, or what the control group of the process allows if that is less.
fn machine_memory_bytes() -> usize {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text)).unwrap_or(ASSUMED_MEMORY_BYTES);
    let allowed = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    allowed.map_or(total, |allowed: usize| allowed.min(total))
}

fn meminfo_total(text: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Config, ConfigError> {
        CommandLine::try_parse_from(std::iter::once(&"millpond").chain(words)).expect("arguments").into_config()
    }

    #[test]
    fn defaults_need_no_argument() {
        let config = parse(&[]).expect("defaults");
        assert_eq!((config.listen.as_str(), config.http.as_deref()), (DEFAULT_LISTEN, Some(DEFAULT_HTTP)));
        assert_eq!(config.data_dir, PathBuf::from(DEFAULT_DATA_DIR));
        assert!(config.memory_limit_bytes >= LEAST_MEMORY_BYTES && config.password.is_none());
    }

    #[test]
    fn arguments_go_before_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("millpond.toml");
        std::fs::write(&file, "listen = \"127.0.0.1:1\"\nmemory_limit = \"64MiB\"\nhttp = \"off\"\n").expect("written");
        let path = file.to_str().expect("text");
        let config = parse(&["serve", "--config", path, "--listen", "127.0.0.1:2"]).expect("settings");
        assert_eq!((config.listen.as_str(), config.memory_limit_bytes, config.http), ("127.0.0.1:2", 64 << 20, None));
        std::fs::write(&file, "lisen = \"x\"\n").expect("written");
        assert!(matches!(parse(&["--config", path]), Err(ConfigError::Parse { .. })));
        assert!(matches!(parse(&["--config", "/nonexistent/x.toml"]), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn the_readme_names_every_setting() {
        let readme = include_str!("../../README.md");
        let command = <CommandLine as clap::CommandFactory>::command();
        let mut settings = Vec::new();
        for argument in command.get_arguments().filter(|argument| argument.get_env().is_some()) {
            let (long, variable) = (argument.get_long().expect("a flag"), argument.get_env().expect("a variable").to_string_lossy());
            let value = &argument.get_value_names().expect("a value")[0];
            let row = format!("| `--{long} {value}` | `{variable}` |");
            assert!(readme.contains(&row), "no row {row}");
            settings.push(long.replace('-', "_"));
        }
        // The file has all of them but its own name, and can be read.
        let file = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a file");
        let _: ConfigFile = toml::from_str(file).expect("a file that can be read");
        let mut keys: Vec<String> = file.lines().filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect();
        keys.push("config".to_owned());
        keys.sort();
        settings.sort();
        assert_eq!(keys, settings);
    }

    #[test]
    fn values_are_checked() {
        assert!(matches!(parse(&["--memory-limit", "1000"]), Err(ConfigError::Value { name: "memory_limit", .. })));
        assert!(matches!(parse(&["--memory-limit", "12 parsecs"]), Err(ConfigError::Value { name: "memory_limit", .. })));
        assert_eq!(parse(&["--memory-limit", "1g"]).expect("a limit").memory_limit_bytes, 1 << 30);
        assert!(parse(&["--parallelism", "0"]).is_err());
        assert_eq!(meminfo_total("MemTotal:       16 kB\n"), Some(16 << 10));
    }
}
