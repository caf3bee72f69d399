//! The server's process under another name, so that the tests' own package builds it.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    millpond_server::process::main()
}
